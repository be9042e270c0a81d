// SPDX-License-Identifier: BSD-2-Clause
// The flame graph: state, mouse and keyboard. Drawing is in flame_paint.ts, places in layout.ts.

import { Choice } from "./choice";
import { Report } from "./data";
import { announce, byId } from "./dom";
import { heightOf, Painter, Picture, ROW_HEIGHT, rowAt, Style, topOfRow } from "./flame_paint";
import { formatFigure, formatGrowth, formatPercent, printable } from "./format";
import { Box, findBox, Layout, layOut, neighbour, OMITTED, widestChild } from "./layout";
import { nameOf } from "./names";
import { Palette } from "./palette";
import { isDark, themeColor } from "./theme";
import { hideTooltip, showTooltip } from "./tooltip";
import { depthOf, ROOT, Tree } from "./tree";

const NONE = -1;
const NARROWEST = 1;

export class FlameGraph {
  flamesUp = false;
  private zoom = ROOT;
  private selected = ROOT;
  private hovered = NONE;
  private matches: Uint8Array | null = null;
  private layout: Layout = { rows: [], zoomRow: 0 };
  private isScheduled = false;
  private readonly labels = new Map<number, string>();
  private readonly scroller = byId("flame-scroll");
  private readonly spacer = byId("flame-space");
  private readonly canvas = byId<HTMLCanvasElement>("flame-canvas");
  private readonly painter = new Painter(this.canvas);
  /** Called when the frame that is zoomed on, or the tree, has changed. */
  onZoom: (node: number) => void = () => undefined;
  /** Called for the menu of a frame at a place of the window. */
  onMenu: (tree: Tree, node: number, x: number, y: number) => void = () => undefined;

  constructor(
    private readonly report: Report,
    private readonly choice: Choice,
    private readonly palette: Palette,
    private tree: Tree,
  ) {
    new ResizeObserver(() => this.arrange()).observe(this.scroller);
    this.scroller.addEventListener("scroll", () => this.schedule());
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("contextmenu", (event) => this.openMenu(event));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("focus", () => this.schedule());
    this.canvas.addEventListener("blur", () => this.schedule());
  }

  /** Shows another tree, or the same with other figures; zoomed to the frame of the same callers. */
  setTree(tree: Tree): void {
    const path = this.zoomPath();
    this.tree = tree;
    this.zoomToPath(path);
  }

  /** Names from the root's child to the frame that is zoomed on. */
  zoomPath(): number[] {
    const path = [];
    for (let node = this.zoom; node !== ROOT; node = this.tree.parent(node)) path.unshift(this.tree.name(node));
    return path;
  }

  /** Zooms to the frame at the end of the path, or to the root where there is none with a width. */
  zoomToPath(path: number[]): void {
    let node = ROOT;
    for (const name of path) {
      const child = Array.from(this.tree.children(node)).find((one) => this.tree.name(one) === name);
      node = child ?? ROOT;
      if (child === undefined) break;
    }
    this.zoomTo(this.tree.weight(node) > 0 ? node : ROOT);
  }

  setFlamesUp(flamesUp: boolean): void {
    this.flamesUp = flamesUp;
    this.arrange();
    this.scrollToRow(this.layout.zoomRow);
  }

  /** Marks frames whose names are set in `matches`; null ends the search. */
  setMatches(matches: Uint8Array | null): void {
    this.matches = matches;
    this.schedule();
  }

  zoomTo(node: number): void {
    this.zoom = this.selected = node;
    this.arrange();
    this.scrollToRow(this.layout.zoomRow);
    this.onZoom(node);
  }

  /* ---- drawing ---- */

  private arrange(): void {
    const width = this.scroller.clientWidth;
    if (!width) return; // not shown
    this.layout = layOut(this.tree, this.zoom, width, NARROWEST);
    this.spacer.style.height = `${heightOf(this.layout)}px`;
    // Of the whole graph, so that the page keeps its shape when one zooms.
    if (this.zoom === ROOT) this.scroller.style.height = `${heightOf(this.layout) + 2}px`;
    this.painter.resize(width, this.scroller.clientHeight);
    this.paint();
  }

  private growth(node: number): number {
    return this.tree.sum(node) - this.tree.base(node);
  }

  /** Draws with the next frame of the screen, however often it is asked. */
  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.paint();
    });
  }

  private labelOf(node: number): string {
    const name = this.tree.name(node);
    let label = this.labels.get(name);
    if (label === undefined) this.labels.set(name, (label = printable(nameOf(this.report, this.tree, node))));
    return label;
  }

  private colorOf(node: number, dark: boolean): string {
    if (this.report.before) return this.palette.byGrowth(this.tree.base(node), this.tree.sum(node), dark);
    if (node === ROOT) return themeColor("--root");
    return this.palette.byModule(this.tree.frame(node), dark);
  }

  private style(): Style {
    return {
      text: themeColor("--frame-text"),
      faintText: themeColor("--muted"),
      omitted: themeColor("--omitted"),
      outline: themeColor("--text"),
      match: themeColor("--match"),
      matchText: themeColor("--match-text"),
      background: themeColor("--surface"),
    };
  }

  paint(): void {
    const dark = isDark();
    const picture: Picture = {
      layout: this.layout,
      flamesUp: this.flamesUp,
      scrollTop: this.scroller.scrollTop,
      selected: document.activeElement === this.canvas ? this.selected : NONE,
      hovered: this.hovered,
      searching: this.matches !== null,
      style: this.style(),
      label: (node) => this.labelOf(node),
      color: (node) => this.colorOf(node, dark),
      isMatch: (node) => this.matches !== null && this.matches[this.tree.name(node)] === 1,
    };
    this.painter.paint(picture);
  }

  private scrollToRow(row: number): void {
    const top = topOfRow(this.layout, row, this.flamesUp);
    const height = this.scroller.clientHeight;
    const isAbove = top < this.scroller.scrollTop;
    if (isAbove || top + ROW_HEIGHT > this.scroller.scrollTop + height)
      this.scroller.scrollTop = isAbove ? top - ROW_HEIGHT : top + 2 * ROW_HEIGHT - height;
    this.schedule();
  }

  /* ---- mouse ---- */

  private boxAt(event: MouseEvent): Box | null {
    const y = event.offsetY + this.scroller.scrollTop;
    const row = this.layout.rows[rowAt(this.layout, y, this.flamesUp)];
    const place = row ? findBox(row, event.offsetX) : NONE;
    return place === NONE ? null : row[place];
  }

  private hover(event: MouseEvent): void {
    const box = this.boxAt(event);
    this.hovered = box ? box.node : NONE;
    this.canvas.style.cursor = this.hovered === NONE ? "default" : "pointer";
    if (!box) hideTooltip();
    else showTooltip(this.report, this.choice, this.tree, box.node, event.clientX, event.clientY);
    this.schedule();
  }

  private leave(): void {
    this.hovered = NONE;
    hideTooltip();
    this.schedule();
  }

  private click(event: MouseEvent): void {
    const box = this.boxAt(event);
    if (!box || box.node === OMITTED) return;
    hideTooltip();
    this.zoomTo(box.node);
  }

  private openMenu(event: MouseEvent): void {
    event.preventDefault();
    const box = event.button === 2 ? this.boxAt(event) : null;
    if (box && box.node !== OMITTED) this.openMenuOf(box.node, event.clientX, event.clientY);
    else if (!box) this.openMenuOfSelection();
  }

  private openMenuOf(node: number, x: number, y: number): void {
    hideTooltip();
    this.canvas.focus({ preventScroll: true });
    this.selected = node;
    this.schedule();
    if (node !== ROOT) this.onMenu(this.tree, node, x, y);
  }

  private openMenuOfSelection(): void {
    const row = this.rowOf(this.selected);
    const box = this.layout.rows[row]?.find(({ node }) => node === this.selected);
    const place = this.canvas.getBoundingClientRect();
    const y = topOfRow(this.layout, row, this.flamesUp) + ROW_HEIGHT - this.scroller.scrollTop;
    this.openMenuOf(this.selected, place.left + (box?.x ?? 0), place.top + y);
  }

  /* ---- keyboard ---- */

  private press(event: KeyboardEvent): void {
    const actions: Record<string, () => void> = {
      ArrowUp: () => this.step(this.flamesUp ? 1 : -1),
      ArrowDown: () => this.step(this.flamesUp ? -1 : 1),
      ArrowLeft: () => this.stepAside(-1),
      ArrowRight: () => this.stepAside(1),
      Home: () => this.select(ROOT),
      Enter: () => this.zoomBySelection(this.selected),
      " ": () => this.zoomBySelection(this.selected),
      Backspace: () => this.zoomBySelection(this.tree.parent(this.zoom)),
      Escape: () => this.zoomBySelection(ROOT),
      m: () => this.openMenuOfSelection(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  private zoomBySelection(node: number): void {
    this.zoomTo(node);
    announce(`Zoomed to ${this.describe(node)}`);
  }

  /** Outward to the caller, or inward to the widest of the children. */
  private step(direction: number): void {
    this.select(direction < 0 ? this.tree.parent(this.selected) : widestChild(this.tree, this.layout, this.selected));
  }

  private stepAside(direction: number): void {
    this.select(neighbour(this.layout.rows[this.rowOf(this.selected)], this.selected, direction));
  }

  private rowOf(node: number): number {
    return depthOf(this.tree, node);
  }

  private select(node: number): void {
    this.selected = node;
    this.scrollToRow(this.rowOf(node));
    announce(this.describe(node));
  }

  private describe(node: number): string {
    const { tree, choice } = this;
    const figure = formatFigure(tree.sum(node), choice.unit);
    const share = formatPercent(tree.sum(node), tree.sum(ROOT));
    const growth = this.report.before ? `, ${formatGrowth(this.growth(node), choice.unit)}` : "";
    return `${nameOf(this.report, tree, node)}: ${figure}, ${share}${growth}`;
  }
}
