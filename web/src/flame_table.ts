// SPDX-License-Identifier: BSD-2-Clause
// The flame graph as a table: what the canvas shows, for those who do not see it.

import { Choice } from "./choice";
import { Report } from "./data";
import { byId, make } from "./dom";
import { FlameGraph } from "./flame";
import { formatExact, formatFigure, formatPercent } from "./format";
import { nameOf } from "./names";
import { ROOT, Tree } from "./tree";

const ROWS_MAX = 200;

export class FlameTable {
  private readonly details = byId<HTMLDetailsElement>("frames");
  private readonly caption = byId("frames-caption");
  private readonly body = byId("frames-body");
  private node = ROOT;

  constructor(
    private readonly report: Report, private readonly choice: Choice,
    private readonly flame: FlameGraph, private tree: Tree,
  ) {
    this.details.addEventListener("toggle", () => this.fill());
  }

  show(tree: Tree, node: number): void {
    this.tree = tree;
    this.node = node;
    this.fill();
  }

  private fill(): void {
    if (!this.details.open) return;
    const { tree, node } = this;
    const children = Array.from(tree.children(node)).filter((child) => tree.weight(child) > 0)
      .sort((a, b) => tree.weight(b) - tree.weight(a));
    byId("frames-self").textContent = tree.selfTitle;
    const hadFocus = this.body.contains(document.activeElement);
    this.caption.textContent =
      `${nameOf(this.report, tree, node)}, and the ${children.length} frames next to it`;
    this.body.replaceChildren(
      ...(node === ROOT ? [] : [this.row(tree.parent(node), "Out to ")]),
      this.row(node, ""),
      ...children.slice(0, ROWS_MAX).map((child) => this.row(child, "")));
    if (hadFocus) this.body.querySelector("button")?.focus();
  }

  private row(node: number, prefix: string): HTMLElement {
    const { tree, choice } = this;
    const name = nameOf(this.report, tree, node);
    const figure = (value: number) =>
      make("td", { class: "number", title: formatExact(value, choice.unit), "data-figure": value },
        formatFigure(value, choice.unit));
    return make("tr", {},
      make("th", { scope: "row", class: "text" }, node === this.node ? make("strong", {}, name)
        : make("button", { type: "button", class: "name", click: () => this.flame.zoomTo(node) }, prefix + name)),
      figure(tree.sum(node)),
      make("td", { class: "number muted" }, formatPercent(tree.sum(node), tree.sum(ROOT))),
      figure(tree.self(node)));
  }
}
