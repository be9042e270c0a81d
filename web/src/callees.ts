// SPDX-License-Identifier: BSD-2-Clause
// The call tree from the program's beginning to what allocated, one child for each name; as
// src/profile/calltree.c makes it.

import { Choice, Width } from "./choice";
import { Report } from "./data";
import { Tree } from "./tree";

/** Nodes merged by name, before they have their places: parents come before children. */
interface Groups {
  count: number;
  parent: Uint32Array;
  name: Uint32Array;
  frame: Uint32Array;
  /** By node of the report. */
  ofNode: Uint32Array;
}

function hashCapacity(count: number): number {
  let capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  return capacity;
}

function nameOfFrames(report: Report): Uint32Array {
  return report.frames.functionId.map((id) => report.functions.name[id]);
}

/** Puts nodes of one name below one parent together, with an open hash of (parent, name). */
function group(report: Report): Groups {
  const { nodes } = report;
  const nameOf = nameOfFrames(report);
  const groups: Groups = {
    count: 1,
    parent: new Uint32Array(nodes.count),
    name: new Uint32Array(nodes.count),
    frame: new Uint32Array(nodes.count),
    ofNode: new Uint32Array(nodes.count),
  };
  const mask = hashCapacity(nodes.count) - 1;
  const slots = new Uint32Array(mask + 1);
  for (let i = 1; i < nodes.count; i++) {
    const parent = groups.ofNode[nodes.parent[i]];
    const name = nameOf[nodes.frame[i]];
    let slot = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(name, 0x85ebca6b)) >>> 7 & mask;
    let id = slots[slot];
    while (id && (groups.parent[id] !== parent || groups.name[id] !== name)) {
      slot = (slot + 1) & mask;
      id = slots[slot];
    }
    if (!id) {
      id = slots[slot] = groups.count++;
      groups.parent[id] = parent;
      groups.name[id] = name;
      groups.frame[id] = nodes.frame[i];
    }
    groups.ofNode[i] = id;
  }
  return groups;
}

/** The ids 1, 2, ... in the order of their keys; equal keys stay in the order of `ids`. */
function sortBy(keys: Uint32Array, keyCount: number, ids: Uint32Array): Uint32Array {
  const next = new Uint32Array(keyCount + 1);
  for (const id of ids) next[keys[id] + 1]++;
  for (let i = 1; i <= keyCount; i++) next[i] += next[i - 1];
  const sorted = new Uint32Array(ids.length);
  for (const id of ids) sorted[next[keys[id]]++] = id;
  return sorted;
}

export class CalleeTree implements Tree {
  readonly selfTitle = "Own";
  readonly count: number;
  readonly parents: Uint32Array;
  readonly names: Uint32Array;
  /** Stacks that weigh less than nothing, and so are not drawn. */
  readonly undrawn = { count: 0, sum: 0 };
  readonly selfs: Float64Array;
  readonly bases: Float64Array;
  readonly weights: Float64Array;
  private readonly end: Uint32Array;
  private readonly frames: Uint32Array;
  private readonly sums: Float64Array;
  private readonly baseSums: Float64Array;
  private readonly weightSums: Float64Array;
  /** By leaf of the report: its node here. */
  private readonly ofLeaf: Uint32Array;

  constructor(private readonly report: Report) {
    const groups = group(report);
    this.count = groups.count;
    this.parents = new Uint32Array(this.count);
    this.names = new Uint32Array(this.count);
    this.frames = new Uint32Array(this.count);
    this.end = new Uint32Array(this.count);
    const ids = this.layOut(groups);
    this.ofLeaf = report.leaves.map((node) => ids[groups.ofNode[node]]);
    const numbers = () => new Float64Array(this.count);
    [this.selfs, this.bases, this.weights] = [numbers(), numbers(), numbers()];
    [this.sums, this.baseSums, this.weightSums] = [numbers(), numbers(), numbers()];
  }

  /** Brings groups into preorder, siblings in the order of names; gives the new ids. */
  private layOut(groups: Groups): Uint32Array {
    const { count, parent, name, frame } = groups;
    const sizes = new Uint32Array(count).fill(1);
    for (let i = count - 1; i > 0; i--) sizes[parent[i]] += sizes[i];
    const unordered = new Uint32Array(count - 1).map((_, i) => i + 1);
    const byName = sortBy(name, this.report.texts.length, unordered);
    const nextFree = new Uint32Array(count);
    const ids = new Uint32Array(count);
    this.end[0] = count;
    nextFree[0] = 1;
    // Sorted by parent, a parent has its place before its children ask for theirs.
    for (const id of sortBy(parent, count, byName)) {
      const place = ids[id] = nextFree[parent[id]];
      nextFree[parent[id]] += sizes[id];
      nextFree[id] = place + 1;
      this.parents[place] = ids[parent[id]];
      this.names[place] = name[id];
      this.frames[place] = frame[id];
      this.end[place] = place + sizes[id];
    }
    return ids;
  }

  /** Fills in the chosen figures. */
  show(choice: Choice): void {
    this.scatter(choice.column(this.report.after), this.selfs);
    if (this.report.before) this.scatter(choice.column(this.report.before), this.bases);
    else this.bases.fill(0);
    this.weighAll(choice.width);
    this.sumUp(this.selfs, this.sums);
    this.sumUp(this.bases, this.baseSums);
    this.sumUp(this.weights, this.weightSums);
  }

  private weighAll(width: Width): void {
    this.undrawn.count = this.undrawn.sum = 0;
    for (let i = 0; i < this.count; i++) {
      const weight = weigh(width, this.selfs[i], this.bases[i]);
      this.weights[i] = Math.max(0, weight);
      if (weight >= 0) continue;
      this.undrawn.count++;
      this.undrawn.sum += weight;
    }
  }

  private scatter(column: Float64Array, figures: Float64Array): void {
    figures.fill(0);
    for (let i = 0; i < column.length; i++) figures[this.ofLeaf[i]] += column[i];
  }

  private sumUp(figures: Float64Array, sums: Float64Array): void {
    sums.set(figures);
    for (let i = this.count - 1; i > 0; i--) sums[this.parents[i]] += sums[i];
  }

  children(node: number): number[] {
    const children = [];
    for (let child = node + 1; child < this.end[node]; child = this.end[child]) children.push(child);
    return children;
  }

  /** One past the last node below `node`. */
  endOf(node: number): number {
    return this.end[node];
  }

  parent(node: number): number {
    return this.parents[node];
  }

  name(node: number): number {
    return this.names[node];
  }

  frame(node: number): number {
    return this.frames[node];
  }

  sum(node: number): number {
    return this.sums[node];
  }

  base(node: number): number {
    return this.baseSums[node];
  }

  self(node: number): number {
    return this.selfs[node];
  }

  weight(node: number): number {
    return this.weightSums[node];
  }

  /** The figures of the stacks that pass through a frame whose name matches. */
  sumOfMatches(isMatch: Uint8Array): number {
    let sum = 0;
    for (let i = 1; i < this.count; i++) {
      if (!isMatch[this.names[i]]) continue;
      sum += this.sums[i];
      i = this.end[i] - 1;
    }
    return sum;
  }
}

/** What a stack's own figures weigh; stacks that shrank weigh less than nothing. */
function weigh(width: Width, after: number, before: number): number {
  if (width === "growth") return after - before;
  return width === "before" ? before : after;
}
