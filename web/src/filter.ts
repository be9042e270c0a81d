// SPDX-License-Identifier: BSD-2-Clause
// Which stacks and frames the page shows: the reader's counterpart of --focus, --ignore and --hide.

import { Choice } from "./choice";
import { Report } from "./data";

export const ROLES = ["focus", "ignore", "hide"] as const;
export type Role = typeof ROLES[number];

export interface Rule {
  role: Role;
  /** A function's whole name, or a regular expression (or text) to find in names and paths. */
  text: string;
  isName: boolean;
}

/** Whether the text is found in a name; text that is not an expression is looked for as it is. */
export function finder(text: string, ignoresCase: boolean): (name: string) => boolean {
  try {
    const expression = new RegExp(text, ignoresCase ? "i" : "");
    return (name) => expression.test(name);
  } catch {
    const fold = (name: string) => (ignoresCase ? name.toLowerCase() : name);
    const wanted = fold(text);
    return (name) => fold(name).includes(wanted);
  }
}

export class Filter {
  readonly rules: Rule[] = [];
  private readonly whole: { nodes: Report["nodes"]; leaves: Uint32Array };
  private readonly listeners: (() => void)[] = [];

  constructor(private readonly report: Report, private readonly choice: Choice) {
    this.whole = { nodes: report.nodes, leaves: report.leaves };
  }

  /** Calls `listener` after every change of the rules. */
  listen(listener: () => void): void {
    this.listeners.push(listener);
  }

  add(rule: Rule): void {
    if (this.rules.some((other) => other.role === rule.role && other.text === rule.text)) return;
    this.rules.push(rule);
    this.apply();
  }

  remove(rule: Rule): void {
    this.rules.splice(this.rules.indexOf(rule), 1);
    this.apply();
  }

  /** By frame: whether the rule matches it, as in src/profile/filter.c. */
  private framesOf(rule: Rule): Uint8Array {
    const { frames, functions, texts, summary } = this.report;
    const isFound = rule.isName ? (name: string) => name === rule.text : finder(rule.text, false);
    const paths = rule.isName ? [] : summary.modules.map((module) => isFound(module.path));
    const found = new Map<number, boolean>();
    const matches = (text: number) => {
      let isMatch = found.get(text);
      if (isMatch === undefined) found.set(text, (isMatch = text !== 0 && isFound(texts[text])));
      return isMatch;
    };
    const isMatch = new Uint8Array(frames.count);
    for (let i = 1; i < frames.count; i++) {
      const id = frames.functionId[i];
      const isHit = matches(functions.name[id]) ||
        (!rule.isName && (matches(functions.file[id]) || matches(frames.file[i]) || paths[functions.module[id]]));
      isMatch[i] = isHit ? 1 : 0;
    }
    return isMatch;
  }

  private apply(): void {
    const { report, whole, choice } = this;
    if (!this.rules.length) {
      report.nodes = whole.nodes;
      report.leaves = whole.leaves;
      choice.setKept(null);
    } else {
      const matched = this.rules.map((rule) => ({ role: rule.role, isMatch: this.framesOf(rule) }));
      const kept = this.keptLeaves(matched);
      this.leaveOut(matched.filter(({ role }) => role === "hide").map(({ isMatch }) => isMatch));
      choice.setKept(kept);
    }
    for (const listener of this.listeners) listener();
  }

  /** By leaf: whether every focus is in its stack, and nothing that is ignored. */
  private keptLeaves(matched: { role: Role; isMatch: Uint8Array }[]): Uint8Array {
    const { nodes, leaves } = this.whole;
    const kept = new Uint8Array(leaves.length).fill(1);
    const inStack = new Uint8Array(nodes.count);
    for (const { role, isMatch } of matched) {
      if (role === "hide") continue;
      for (let i = 1; i < nodes.count; i++) inStack[i] = inStack[nodes.parent[i]] | isMatch[nodes.frame[i]];
      leaves.forEach((node, i) => (kept[i] &= role === "focus" ? inStack[node] : 1 - inStack[node]));
    }
    return kept;
  }

  /** The node that has what `node` holds: plumbing that stood above a hidden frame is folded too, as by hl_plumbing_fold(). */
  private withoutPlumbing(node: number): number {
    const { nodes, frames, functions } = this.report;
    while (nodes.parent[node] && functions.plumbing[frames.functionId[nodes.frame[node]]]) node = nodes.parent[node];
    return node;
  }

  /** Takes frames out of the tree; what they hold is their callers'. Nodes stay in preorder. */
  private leaveOut(hidden: Uint8Array[]): void {
    const { nodes, leaves } = this.whole;
    const place = new Uint32Array(nodes.count);
    const parent = new Uint32Array(nodes.count);
    const frame = new Uint32Array(nodes.count);
    let count = 1;
    for (let i = 1; i < nodes.count; i++) {
      place[i] = place[nodes.parent[i]];
      if (hidden.some((isMatch) => isMatch[nodes.frame[i]])) continue;
      parent[count] = place[i];
      frame[count] = nodes.frame[i];
      place[i] = count++;
    }
    const end = new Uint32Array(count).map((_, i) => i + 1);
    for (let i = count - 1; i > 0; i--) end[parent[i]] = Math.max(end[parent[i]], end[i]);
    this.report.nodes = { count, parent: parent.subarray(0, count), end, frame: frame.subarray(0, count) };
    this.report.leaves = leaves.map((node) => (hidden.length ? this.withoutPlumbing(place[node]) : place[node]));
  }
}
