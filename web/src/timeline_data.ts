// SPDX-License-Identifier: BSD-2-Clause
// What a process had in use over time; see src/view/page/report.h.

import { ColumnReader } from "./columns";
import { Figures } from "./data";

/** The member `timeline` of the report's object. */
export interface TimelineHead {
  pid: number;
  command: string;
  first_ms: number;
  interval_ms: number;
  intervals: number;
  point_intervals: number;
  moment_points: number;
  points: number;
  moments: number;
  changes: number;
  marks: { ms: number; text: string }[];
  holes: { first_ms: number; last_ms: number }[];
}

/** A moment within the part of the timeline whose maximum it is. */
export interface Moment {
  /** Its part; milliseconds since the recording began. */
  fromMs: number;
  toMs: number;
  ms: number;
  bytes: number;
  /** The most in any interval of the part; 0: unknown. */
  rss: number;
}

export class Timeline {
  /** By point: when it was highest, bytes in use then, and RSS (0: unknown). */
  readonly ms: Float64Array;
  readonly bytes: Float64Array;
  readonly rss: Float64Array;
  readonly moments: Moment[];
  /** By moment: where its changes end. */
  private readonly changesEnd: Float64Array;
  private readonly leaf: Uint32Array;
  private readonly bytesMore: Float64Array;
  private readonly objectsMore: Float64Array;

  /** `leafCount` is how many leaves the report has. */
  constructor(readonly head: TimelineHead, reader: ColumnReader, private readonly leafCount: number) {
    this.ms = Float64Array.from(reader.numbers(head.points), (offset, i) => this.startOfPoint(i) + offset);
    this.bytes = reader.signed(head.points);
    this.rss = reader.numbers(head.points);
    const places = reader.numbers(head.moments);
    this.changesEnd = reader.numbers(head.moments);
    for (let i = 1; i < head.moments; i++) this.changesEnd[i] += this.changesEnd[i - 1];
    this.leaf = reader.ids(head.changes, 0);
    this.bytesMore = reader.signed(head.changes);
    this.objectsMore = reader.signed(head.changes);
    this.moments = [...places].map((place, i) => this.makeMoment(i, i * head.moment_points + place));
  }

  private makeMoment(index: number, point: number): Moment {
    const first = index * this.head.moment_points;
    const end = Math.min(first + this.head.moment_points, this.head.points);
    return {
      fromMs: this.startOfPoint(first), toMs: this.startOfPoint(end),
      ms: this.ms[point], bytes: this.bytes[point], rss: this.rss.subarray(first, end).reduce((a, b) => Math.max(a, b), 0),
    };
  }

  get startMs(): number {
    return this.head.first_ms;
  }

  get endMs(): number {
    return this.head.first_ms + this.head.intervals * this.head.interval_ms;
  }

  startOfPoint(point: number): number {
    return Math.min(this.startMs + point * this.head.point_intervals * this.head.interval_ms, this.endMs);
  }

  /** The point that holds `ms`, or the nearest one. */
  pointAt(ms: number): number {
    const point = Math.floor((ms - this.startMs) / (this.head.point_intervals * this.head.interval_ms));
    return Math.max(0, Math.min(point, this.head.points - 1));
  }

  momentAt(ms: number): number {
    return Math.floor(this.pointAt(ms) / this.head.moment_points);
  }

  /** The highest of the moments from `first` to `last`; the first of several. */
  highest(first: number, last: number): number {
    let highest = first;
    for (let i = first; i <= last; i++) if (this.moments[i].bytes > this.moments[highest].bytes) highest = i;
    return highest;
  }

  /** What each leaf had in use at a moment. */
  figuresAt(moment: number): Figures {
    const bytes = new Float64Array(this.leafCount);
    const objects = new Float64Array(this.leafCount);
    let at = 0;
    for (let i = 0; i <= moment; i++) {
      // Leaves are stored as differences within a moment.
      for (let leaf = 0; at < this.changesEnd[i]; at++) {
        leaf += this.leaf[at];
        bytes[leaf] += this.bytesMore[at];
        objects[leaf] += this.objectsMore[at];
      }
    }
    return new Map([["inuse_bytes", bytes], ["inuse_objects", objects]]);
  }
}
