// SPDX-License-Identifier: BSD-2-Clause
// The call tree reversed: from the functions that allocated, or from the calls of one function, to
// their callers. The whole of it can be far larger than the profile, so nodes come into being when
// their parents are opened.

import { CalleeTree } from "./callees";
import { ROOT, Tree } from "./tree";

/** A node stands for the stacks order[from] .. order[to - 1]. */
interface CallerNode {
  parent: number;
  name: number;
  frame: number;
  from: number;
  to: number;
  sum: number;
  base: number;
  self: number;
  weight: number;
  children: number[] | null;
}

const ID_SPACE = 2 ** 32;

export class CallerTree implements Tree {
  readonly selfTitle = "Outermost";
  private readonly nodes: CallerNode[] = [];
  /** By the callee tree's node: the figures of the stack that ends there. */
  private readonly ofStack: { sum(node: number): number; base(node: number): number; weight(node: number): number };
  /** Stacks by the callee tree's node that ends them; every node's are a run of this. */
  private readonly order: Uint32Array;
  /** By place in `order`: how far out the stack has been followed. */
  private readonly reached: Uint32Array;

  /** Without `calls` the callers of all that allocated; else of these nodes, with what is below them. */
  constructor(private readonly callees: CalleeTree, private readonly calls: number[] | null = null) {
    const { selfs, bases, weights, count } = callees;
    this.ofStack = calls ? callees
      : { sum: (node) => selfs[node], base: (node) => bases[node], weight: (node) => weights[node] };
    this.order = calls ? Uint32Array.from(calls) : new Uint32Array(count).map((_, i) => i)
      .filter((i) => i !== ROOT && (selfs[i] !== 0 || bases[i] !== 0));
    this.reached = this.order.slice();
    const opened = this.add(ROOT, 0, this.order.length);
    if (calls) return;
    this.nodes[opened].children = this.split(opened, (place) => this.reached[place]);
    this.nodes[opened].name = 0;
    this.nodes[opened].self = selfs[ROOT];
  }

  /** A node of the stacks from `from` to `to`, without its children. */
  private add(parent: number, from: number, to: number): number {
    const at = from < to ? this.reached[from] : ROOT;
    const node: CallerNode = {
      parent, from, to, name: this.callees.name(at), frame: this.callees.frame(at),
      sum: 0, base: 0, self: 0, weight: 0, children: null,
    };
    for (let place = from; place < to; place++) {
      const stack = this.order[place];
      node.sum += this.ofStack.sum(stack);
      node.base += this.ofStack.base(stack);
      node.weight += this.ofStack.weight(stack);
      if (this.callees.parent(this.reached[place]) === ROOT) node.self += this.ofStack.sum(stack);
    }
    return this.nodes.push(node) - 1;
  }

  /** Sorts the stacks of `node` by the name of step(place), and makes a child for each name. */
  private split(node: number, step: (place: number) => number): number[] {
    const { from, to } = this.nodes[node];
    const steps = new Uint32Array(to - from).map((_, i) => step(from + i));
    const keys = new Float64Array(to - from);
    for (let i = 0; i < keys.length; i++) keys[i] = this.callees.name(steps[i]) * ID_SPACE + i;
    keys.sort();
    const stacks = this.order.slice(from, to);
    keys.forEach((key, i) => {
      const source = key % ID_SPACE;
      this.order[from + i] = stacks[source];
      this.reached[from + i] = steps[source];
    });
    return this.addRuns(node, from, to);
  }

  private addRuns(node: number, from: number, to: number): number[] {
    const children = [];
    const nameAt = (place: number) => this.callees.name(this.reached[place]);
    // Stacks that have come to their beginning have no name, and come first.
    while (from < to && nameAt(from) === 0) from++;
    while (from < to) {
      let end = from + 1;
      while (end < to && nameAt(end) === nameAt(from)) end++;
      children.push(this.add(node, from, end));
      from = end;
    }
    return children;
  }

  children(node: number): number[] {
    const found = this.nodes[node].children;
    return found ??
      (this.nodes[node].children = this.split(node, (place) => this.callees.parent(this.reached[place])));
  }

  parent(node: number): number {
    return this.nodes[node].parent;
  }

  name(node: number): number {
    return this.nodes[node].name;
  }

  frame(node: number): number {
    return this.nodes[node].frame;
  }

  /** Whether the node has what no stack has, too. */
  private isWhole(node: number): boolean {
    return node === ROOT && !this.calls;
  }

  sum(node: number): number {
    return this.nodes[node].sum + (this.isWhole(node) ? this.callees.self(ROOT) : 0);
  }

  base(node: number): number {
    return this.nodes[node].base + (this.isWhole(node) ? this.callees.bases[ROOT] : 0);
  }

  self(node: number): number {
    return this.nodes[node].self;
  }

  weight(node: number): number {
    return this.nodes[node].weight + (this.isWhole(node) ? this.callees.weights[ROOT] : 0);
  }
}
