// SPDX-License-Identifier: BSD-2-Clause
// The script of the picture that `heapline flame` writes: draws the frames for the window and for the
// frame that is zoomed to, and answers to mouse and keyboard.

import { formatPercent, printable } from "./format";
import { Box, layOut, Layout, neighbour, OMITTED, widestChild } from "./layout";
import { growthStep } from "./palette";
import { Controls } from "./picture_controls";
import { PictureData, PictureTree } from "./picture_data";
import { addStyle, element, svg } from "./picture_svg";
import { Tip } from "./picture_tip";
import { depthOf, ROOT } from "./tree";

// As in src/view/pictures/flame.h and flame_svg.c.
const MARGIN = 12;
const ROW = 18;
const NARROWEST = 0.5;
const LABEL_CELLS = 3;
const TEXT_INSET = 4;
const TEXT_BASELINE = 12.5;
/** The lines of the head need it. */
const WIDTH_MIN = 960;
const CELL = 6.7;
const ROOT_COLOR = 24;

const NONE = -1;

const data = JSON.parse(byId("data").textContent as string) as PictureData;
const tree = new PictureTree(data);
const layer = byId("frames");

function byId(id: string): Element {
  return svg.getElementById(id) as Element;
}

/** The width of a character as this browser draws it. */
function measureCell(): number {
  const probe = element("text", { x: 0, y: -100 }, svg, "M".repeat(100)) as SVGTextElement;
  const width = probe.getComputedTextLength() / 100;
  probe.remove();
  return width > 0 ? width : CELL;
}

class Picture {
  private readonly cell: number;
  private width = 0;
  private zoomed = ROOT;
  /** The deepest row that was drawn so far. */
  private depthMax = 0;
  private layout: Layout = { rows: [], zoomRow: 0 };
  private readonly elements = new Map<number, SVGElement>();
  private readonly nodes = new WeakMap<Element, number>();
  private focused = NONE;
  /** By function: whether the search matches; null: no search. */
  private found: boolean[] | null = null;
  private readonly tip: Tip;
  private readonly controls: Controls;

  constructor() {
    addStyle();
    this.cell = measureCell();
    this.controls = new Controls(tree, this.cell, {
      reset: () => this.zoom(ROOT, true),
      search: (found) => this.setFound(found),
      focusMatch: () => this.focusMatch(),
    });
    this.tip = new Tip(tree, this.cell); // above all
    layer.setAttribute("role", "tree");
    layer.setAttribute("aria-label", "Frames");
    this.addListeners();
    this.fit();
  }

  /* ---- drawing ---- */

  /** Takes the window's width. */
  private fit(): void {
    const width = Math.max(document.documentElement.clientWidth || window.innerWidth, WIDTH_MIN);
    if (width === this.width) return;
    this.width = width;
    this.draw();
  }

  private topOf(row: number): number {
    return data.top + ROW * (data.flamesUp ? this.depthMax - row : row);
  }

  private draw(): void {
    this.layout = layOut(tree, this.zoomed, this.width - 2 * MARGIN, NARROWEST);
    this.depthMax = Math.max(this.depthMax, this.layout.rows.length - 1);
    const boxes = this.layout.rows.flatMap((row, depth) => row.map((box) => ({ box, depth })));
    this.elements.clear();
    // In preorder, as the Tab key and screen readers go.
    for (const { box, depth } of boxes.sort((a, b) => a.box.node - b.box.node)) {
      if (box.node === OMITTED) continue;
      const drawn = this.drawFrame(box, depth);
      drawn.classList.toggle("above", depth < this.layout.zoomRow);
      this.elements.set(box.node, drawn);
      this.nodes.set(drawn, box.node);
    }
    layer.replaceChildren(...this.elements.values());
    const height = data.top + ROW * (this.depthMax + 1) + 14;
    svg.setAttribute("width", String(this.width));
    svg.setAttribute("height", String(height));
    svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.controls.place(this.width - MARGIN);
    this.tip.hide();
  }

  private labelOf(node: number, width: number): { name: string; figures?: string } | null {
    const room = Math.floor((width - 2 * TEXT_INSET) / this.cell);
    const name = printable(tree.nameOf(node));
    const figures = tree.short(tree.sum(node)) + (data.diff ? ` (${tree.growth(node)})` : "");
    if (room < LABEL_CELLS) return null;
    if (name.length > room) return { name: `${name.slice(0, room - 1)}…` };
    return name.length + 2 + figures.length <= room ? { name, figures } : { name };
  }

  private colorOf(node: number): number {
    return data.growthColors ? growthStep(tree.base(node), tree.sum(node)) : tree.functionOf(node)?.[4] ?? ROOT_COLOR;
  }

  private isFound(node: number): boolean {
    return this.found !== null && node !== ROOT && this.found[tree.name(node) - 1];
  }

  /** A group with its label, or the rectangle alone where there is no room for one. */
  private drawFrame(box: Box, depth: number): SVGElement {
    const { node, width } = box;
    const left = MARGIN + box.x;
    const top = this.topOf(depth);
    const gap = width > 4 ? 1 : width / 4;
    const label = this.labelOf(node, width);
    const rect = element("rect", {
      class: `c${this.colorOf(node)}`, x: left.toFixed(2), y: top, width: (width - gap).toFixed(2), height: ROW - 1,
    });
    rect.classList.toggle("found", this.isFound(node));
    if (!label) return rect;
    rect.setAttribute("rx", "2");
    const group = element("g", {
      tabindex: 0, role: "treeitem", "aria-level": depth + 1,
      "aria-label": `${printable(tree.nameOf(node))}, ${tree.long(tree.sum(node))}, ${formatPercent(tree.sum(node), tree.sum(ROOT))}`,
    });
    group.append(rect);
    const text = element("text", { x: left + TEXT_INSET, y: top + TEXT_BASELINE }, group, label.name);
    if (label.figures) element("tspan", { dx: 8 }, text, label.figures);
    return group;
  }

  private setFound(found: boolean[] | null): void {
    this.found = found;
    layer.classList.toggle("searched", found !== null);
    for (const [node, drawn] of this.elements)
      (drawn.firstElementChild ?? drawn).classList.toggle("found", this.isFound(node));
  }

  private zoom(node: number, keepFocus: boolean): void {
    this.zoomed = node;
    this.draw();
    this.controls.showReset(node !== ROOT);
    if (keepFocus) this.focus(node);
  }

  /* ---- mouse and keyboard ---- */

  private nodeAt(target: EventTarget | null): number {
    const drawn = (target as Element).closest?.("#frames > *");
    return (drawn && this.nodes.get(drawn)) ?? NONE;
  }

  private focus(node: number): void {
    const drawn = this.elements.get(node);
    drawn?.setAttribute("tabindex", "0");
    drawn?.focus();
  }

  private focusMatch(): void {
    for (const node of this.elements.keys())
      if (this.isFound(node)) return this.focus(node);
  }

  private move(key: string): void {
    const node = this.focused;
    const row = this.layout.rows[depthOf(tree, Math.max(node, ROOT))];
    if (node < 0) this.focus(this.zoomed);
    else if (key === "ArrowLeft") this.focus(neighbour(row, node, -1));
    else if (key === "ArrowRight") this.focus(neighbour(row, node, 1));
    else if (key === (data.flamesUp ? "ArrowDown" : "ArrowUp")) this.focus(tree.parent(node));
    else this.focus(widestChild(tree, this.layout, node));
  }

  private press(event: KeyboardEvent): void {
    const opensSearch = event.key === "/" || ((event.ctrlKey || event.metaKey) && event.key === "f");
    if (!opensSearch && (event.ctrlKey || event.metaKey || event.altKey)) return;
    if (opensSearch) this.controls.openSearch();
    else if (event.key.startsWith("Arrow")) this.move(event.key);
    else if (event.key === "Enter" && this.focused >= 0) this.zoom(this.focused, true);
    else if (event.key === "Escape" && this.zoomed !== ROOT) this.zoom(ROOT, this.focused >= 0);
    else if (event.key === "Escape") this.controls.closeSearch();
    else return;
    event.preventDefault();
  }

  private showTip(node: number, x: number, y: number): void {
    this.tip.show(node, this.zoomed, x, y, this.width);
  }

  private followFocus(event: FocusEvent): void {
    this.focused = this.nodeAt(event.target);
    const row = this.layout.rows[depthOf(tree, Math.max(this.focused, ROOT))];
    const box = row.find(({ node }) => node === this.focused);
    if (box) this.showTip(box.node, MARGIN + box.x + Math.min(box.width / 2, 60), this.topOf(this.layout.rows.indexOf(row)) + ROW / 2);
  }

  private addListeners(): void {
    layer.addEventListener("mousemove", (event) => {
      const node = this.nodeAt(event.target);
      const view = svg.getBoundingClientRect();
      if (node < 0) this.tip.hide();
      else this.showTip(node, (event as MouseEvent).clientX - view.left, (event as MouseEvent).clientY - view.top);
    });
    layer.addEventListener("mouseleave", () => this.tip.hide());
    layer.addEventListener("click", (event) => {
      const node = this.nodeAt(event.target);
      if (node >= 0) this.zoom(node, false);
    });
    // Not on the layer, which browsers would make a stop of the Tab key for it.
    window.addEventListener("focusin", (event) => this.followFocus(event));
    window.addEventListener("focusout", () => {
      this.focused = NONE;
      this.tip.hide();
    });
    window.addEventListener("keydown", (event) => this.press(event));
    window.addEventListener("resize", () => this.fit());
    window.addEventListener("scroll", () => this.controls.place(this.width - MARGIN));
  }
}

new Picture();
performance.mark("interactive");
