// SPDX-License-Identifier: BSD-2-Clause
// All that one function calls: its outermost calls put together. Nodes come into being when their
// parents are opened.

import { CalleeTree } from "./callees";
import { ROOT, Tree } from "./tree";

/** A node stands for the callee tree's nodes in `members`, none of which lies below another. */
interface Merged {
  parent: number;
  members: number[];
  children: number[] | null;
}

/** The nodes of the function named `name` that have none of that name above them. */
export function outermostCalls(callees: CalleeTree, name: number): number[] {
  const calls = [];
  for (let i = 1; i < callees.count; i++) {
    if (callees.name(i) !== name) continue;
    calls.push(i);
    i = callees.endOf(i) - 1;
  }
  return calls;
}

export class CalleesOf implements Tree {
  readonly selfTitle = "Own";
  private readonly nodes: Merged[];

  constructor(private readonly callees: CalleeTree, calls: number[]) {
    this.nodes = [{ parent: ROOT, members: calls, children: null }];
  }

  children(node: number): number[] {
    const merged = this.nodes[node];
    if (merged.children) return merged.children;
    const byName = new Map<number, number[]>();
    for (const member of merged.members)
      for (const child of this.callees.children(member)) {
        const known = byName.get(this.callees.name(child));
        if (known) known.push(child);
        else byName.set(this.callees.name(child), [child]);
      }
    const names = [...byName.keys()].sort((a, b) => a - b);
    merged.children = names.map((name) =>
      this.nodes.push({ parent: node, members: byName.get(name) as number[], children: null }) - 1);
    return merged.children;
  }

  parent(node: number): number {
    return this.nodes[node].parent;
  }

  private first(node: number): number {
    return this.nodes[node].members[0] ?? ROOT;
  }

  name(node: number): number {
    return this.callees.name(this.first(node));
  }

  frame(node: number): number {
    return this.callees.frame(this.first(node));
  }

  private add(node: number, figure: (member: number) => number): number {
    return this.nodes[node].members.reduce((sum, member) => sum + figure(member), 0);
  }

  sum(node: number): number {
    return this.add(node, (member) => this.callees.sum(member));
  }

  base(node: number): number {
    return this.add(node, (member) => this.callees.base(member));
  }

  self(node: number): number {
    return this.add(node, (member) => this.callees.self(member));
  }

  weight(node: number): number {
    return this.add(node, (member) => this.callees.weight(member));
  }
}
