// SPDX-License-Identifier: BSD-2-Clause
// The frames of the picture that `heapline flame` writes, as src/view/pictures/flame_script.c describes them.

import { formatBytes, formatCount } from "./format";
import { ROOT, Tree } from "./tree";

/** Name, module, file, line, number of the colour. */
type PictureFunction = [string, number, string, number, number];

export interface PictureData {
  /** Where the frames begin. */
  top: number;
  flamesUp: boolean;
  reversed: boolean;
  diff: boolean;
  growthColors: boolean;
  unit: string;
  /** The other unit, where it is known. */
  other?: string;
  countname?: string;
  /** Value, self, other, base. */
  root: [number, number, number, number];
  modules: string[];
  functions: PictureFunction[];
  frames: string;
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

class NumberReader {
  private at = 0;
  private readonly digits = new Uint8Array(128);

  constructor(private readonly text: string) {
    for (let i = 0; i < DIGITS.length; i++) this.digits[DIGITS.charCodeAt(i)] = i;
  }

  hasMore(): boolean {
    return this.at < this.text.length;
  }

  number(): number {
    let sum = 0;
    for (let scale = 1; ; scale *= 32) {
      const digit = this.digits[this.text.charCodeAt(this.at++)];
      sum += (digit & 31) * scale;
      if (digit < 32) return sum;
    }
  }

  signed(): number {
    const number = this.number();
    const magnitude = Math.floor(number / 2);
    return number % 2 ? -magnitude : magnitude;
  }
}

/** Frames are numbered in preorder. */
export class PictureTree implements Tree {
  readonly selfTitle = "itself";
  private readonly parents = [ROOT];
  /** One past the frame's last descendant. */
  private readonly ends = [0];
  private readonly functionIds = [-1];
  private readonly values: number[];
  private readonly selves: number[];
  private readonly others: number[];
  private readonly bases: number[];

  constructor(readonly data: PictureData) {
    const [value, self, other, base] = data.root;
    this.values = [value];
    this.selves = [self];
    this.others = [other];
    this.bases = [base];
    const reader = new NumberReader(data.frames);
    let parent = ROOT;
    for (let frame = 1; reader.hasMore(); frame++) {
      for (let ended = reader.number(); ended > 0; ended--) parent = this.endFrame(parent);
      this.parents.push(parent);
      this.ends.push(0);
      this.functionIds.push(reader.number());
      this.values.push(this.values[parent] - reader.number());
      this.selves.push(reader.number());
      this.others.push(data.other ? this.others[parent] - reader.signed() : 0);
      this.bases.push(data.diff ? reader.signed() : 0);
      parent = frame;
    }
    while (parent !== ROOT) parent = this.endFrame(parent);
    this.endFrame(ROOT);
  }

  private endFrame(frame: number): number {
    this.ends[frame] = this.values.length;
    return this.parents[frame];
  }

  get count(): number {
    return this.values.length;
  }

  end(node: number): number {
    return this.ends[node];
  }

  children(node: number): number[] {
    const children = [];
    for (let child = node + 1; child < this.ends[node]; child = this.ends[child]) children.push(child);
    return children;
  }

  parent(node: number): number {
    return this.parents[node];
  }

  /** The function's index + 1. */
  name(node: number): number {
    return this.functionIds[node] + 1;
  }

  frame(node: number): number {
    return node;
  }

  sum(node: number): number {
    return this.values[node];
  }

  base(node: number): number {
    return this.bases[node];
  }

  self(node: number): number {
    return this.selves[node];
  }

  other(node: number): number {
    return this.others[node];
  }

  weight(node: number): number {
    return this.values[node];
  }

  functionOf(node: number): PictureFunction | null {
    return node === ROOT ? null : this.data.functions[this.functionIds[node]];
  }

  nameOf(node: number): string {
    return this.functionOf(node)?.[0] ?? "all";
  }

  /* ---- figures ---- */

  /** "1.5 MiB" */
  short(figure: number): string {
    return this.data.unit === "bytes" && !this.data.countname ? formatBytes(figure) : formatCount(figure);
  }

  /** "1.5 MiB (1,572,864 bytes)" */
  long(figure: number): string {
    const { unit, countname } = this.data;
    if (countname || unit !== "bytes") return `${formatCount(figure)} ${countname || unit}`;
    return figure < 1024 ? `${figure} bytes` : `${formatBytes(figure)} (${formatCount(figure)} bytes)`;
  }

  growth(node: number): string {
    const growth = this.sum(node) - this.base(node);
    return `${growth > 0 ? "+" : ""}${this.short(growth)}`;
  }
}
