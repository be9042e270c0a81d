// SPDX-License-Identifier: BSD-2-Clause
// Draws the timeline: an area of bytes in use, a line of RSS, marks, holes, and what is chosen.

import { formatBytes, printable } from "./format";
import { themeColor } from "./theme";
import { byteStep, formatTime, timeStep } from "./timeline_axis";
import { Timeline } from "./timeline_data";

const LEFT = 66;
const RIGHT = 14;
const RIGHT_WITH_AXIS = 70;
const TOP = 16;
const BOTTOM = 22;
const BYTE_TICKS = 5;
const PIXELS_PER_TIME = 90;
/** RSS that exceeds this multiple would flatten what is in use, and gets an axis of its own. */
const RSS_SHARED = 3;
const FONT = "11px system-ui, sans-serif";

/** What is to be seen beside the figures. */
export interface TimelineMarks {
  /** In milliseconds, or null. */
  range: { fromMs: number; toMs: number } | null;
  /** Points whose figures the views show. */
  shown: { ms: number; bytes: number }[];
  hoverMs: number | null;
}

interface Scale {
  step: number;
  top: number;
}

function scaleFor(most: number): Scale {
  const step = byteStep(Math.max(most, 1), BYTE_TICKS);
  return { step, top: Math.max(most * 1.04, step) };
}

function highest(column: Float64Array): number {
  return column.reduce((most, one) => Math.max(most, one), 0);
}

export class TimelinePainter {
  private readonly context: CanvasRenderingContext2D;
  private readonly scale: Scale;
  private readonly rssScale: Scale;
  private readonly right: number;
  private width = 0;
  private height = 0;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly timeline: Timeline) {
    this.context = canvas.getContext("2d") as CanvasRenderingContext2D;
    const most = highest(timeline.bytes);
    const mostRss = highest(timeline.rss);
    const isShared = mostRss <= most * RSS_SHARED;
    this.scale = scaleFor(isShared ? Math.max(most, mostRss) : most);
    this.rssScale = isShared ? this.scale : scaleFor(mostRss);
    this.right = isShared ? RIGHT : RIGHT_WITH_AXIS;
  }

  resize(width: number, height: number): void {
    const ratio = window.devicePixelRatio || 1;
    [this.width, this.height] = [width, height];
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /* ---- places ---- */

  private get plotWidth(): number {
    return Math.max(1, this.width - LEFT - this.right);
  }

  private get bottom(): number {
    return this.height - BOTTOM;
  }

  xOf(ms: number): number {
    const { startMs, endMs } = this.timeline;
    return LEFT + ((ms - startMs) / (endMs - startMs)) * this.plotWidth;
  }

  msAt(x: number): number {
    const { startMs, endMs } = this.timeline;
    const share = Math.max(0, Math.min(1, (x - LEFT) / this.plotWidth));
    return Math.min(startMs + share * (endMs - startMs), endMs - 1);
  }

  private yOf(bytes: number, scale = this.scale): number {
    return this.bottom - (Math.max(0, bytes) / scale.top) * (this.bottom - TOP);
  }

  /* ---- drawing ---- */

  paint(marks: TimelineMarks): void {
    const { context } = this;
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    this.paintHoles();
    this.paintRange(marks);
    this.paintByteAxis();
    this.paintTimeAxis();
    this.paintArea();
    this.paintRss();
    this.paintMarks();
    this.paintChosen(marks);
  }

  private line(x1: number, y1: number, x2: number, y2: number, color: string): void {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    context.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
    context.stroke();
  }

  private text(text: string, x: number, y: number, align: CanvasTextAlign, color: string): void {
    this.context.textAlign = align;
    this.context.textBaseline = "middle";
    this.context.fillStyle = color;
    this.context.fillText(text, x, y);
  }

  private paintByteAxis(): void {
    const { step, top } = this.scale;
    for (let bytes = 0; bytes <= top; bytes += step) {
      const y = this.yOf(bytes);
      this.line(LEFT, y, LEFT + this.plotWidth, y, themeColor("--border"));
      this.text(formatBytes(bytes), LEFT - 8, y, "right", themeColor("--muted"));
    }
    if (this.rssScale === this.scale) return;
    for (let bytes = 0; bytes <= this.rssScale.top; bytes += this.rssScale.step)
      this.text(formatBytes(bytes), LEFT + this.plotWidth + 8, this.yOf(bytes, this.rssScale), "left", themeColor("--rss"));
  }

  private paintTimeAxis(): void {
    const { startMs, endMs } = this.timeline;
    const step = timeStep(endMs - startMs, Math.max(1, this.plotWidth / PIXELS_PER_TIME));
    for (let ms = Math.ceil(startMs / step) * step; ms <= endMs; ms += step) {
      const x = this.xOf(ms);
      this.line(x, this.bottom, x, this.bottom + 4, themeColor("--muted"));
      this.text(formatTime(ms), x, this.bottom + 13, x > this.width - 30 ? "right" : "center", themeColor("--muted"));
    }
  }

  /** Steps: a maximum stands for all of its time. */
  private paintArea(): void {
    const { context, timeline } = this;
    context.beginPath();
    timeline.bytes.forEach((bytes, i) => {
      const y = this.yOf(bytes);
      context.lineTo(this.xOf(timeline.startOfPoint(i)), y);
      context.lineTo(this.xOf(timeline.startOfPoint(i + 1)), y);
    });
    context.strokeStyle = context.fillStyle = themeColor("--accent");
    context.lineWidth = 1.25;
    context.stroke();
    context.lineTo(this.xOf(timeline.endMs), this.bottom);
    context.lineTo(LEFT, this.bottom);
    context.globalAlpha = 0.22;
    context.fill();
    context.globalAlpha = 1;
  }

  private paintRss(): void {
    const { context, timeline } = this;
    context.beginPath();
    let isDrawing = false;
    timeline.rss.forEach((rss, i) => {
      const x = (this.xOf(timeline.startOfPoint(i)) + this.xOf(timeline.startOfPoint(i + 1))) / 2;
      if (rss && isDrawing) context.lineTo(x, this.yOf(rss, this.rssScale));
      else if (rss) context.moveTo(x, this.yOf(rss, this.rssScale));
      isDrawing = rss > 0;
    });
    context.strokeStyle = themeColor("--rss");
    context.lineWidth = 1.5;
    context.stroke();
  }

  private paintHoles(): void {
    this.context.fillStyle = themeColor("--hole");
    for (const hole of this.timeline.head.holes) {
      const x = this.xOf(hole.first_ms);
      this.context.fillRect(x, TOP, Math.max(1, this.xOf(hole.last_ms + 1) - x), this.bottom - TOP);
    }
  }

  /** A line for each mark; its text where the one before leaves room. */
  private paintMarks(): void {
    let end = LEFT;
    this.context.setLineDash([4, 3]);
    for (const { ms, text } of this.timeline.head.marks) {
      const x = this.xOf(ms);
      this.line(x, TOP - 8, x, this.bottom, themeColor("--muted"));
      const label = printable(text);
      const width = this.context.measureText(label).width;
      if (x + 4 < end || x + 4 + width > this.width) continue;
      this.text(label, x + 4, TOP - 8, "left", themeColor("--text"));
      end = x + width + 12;
    }
    this.context.setLineDash([]);
  }

  private paintRange({ range }: TimelineMarks): void {
    if (!range) return;
    const [from, to] = [this.xOf(range.fromMs), this.xOf(range.toMs)];
    this.context.fillStyle = themeColor("--bar");
    this.context.fillRect(from, TOP, Math.max(1, to - from), this.bottom - TOP);
    for (const x of [from, to]) this.line(x, TOP, x, this.bottom, themeColor("--accent"));
  }

  private paintChosen({ shown, hoverMs }: TimelineMarks): void {
    const { context } = this;
    if (hoverMs !== null) this.line(this.xOf(hoverMs), TOP, this.xOf(hoverMs), this.bottom, themeColor("--text"));
    for (const { ms, bytes } of shown) {
      context.beginPath();
      context.arc(this.xOf(ms), this.yOf(bytes), 4.5, 0, 2 * Math.PI);
      context.fillStyle = themeColor("--accent");
      context.fill();
      context.strokeStyle = themeColor("--surface");
      context.lineWidth = 2;
      context.stroke();
    }
  }
}
