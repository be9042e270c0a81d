// SPDX-License-Identifier: BSD-2-Clause
// The call tree as rows that open: an ARIA treegrid, in which only opened rows exist.

import { Choice } from "./choice";
import { Report } from "./data";
import { make } from "./dom";
import { formatExact, formatFigure, formatGrowth, formatPercent } from "./format";
import { nameOf, placeOf } from "./names";
import { ROOT, Tree } from "./tree";

const CHILDREN_SHOWN = 50;
const DEEPEST_INDENT = 40;
/** Rows are opened from the start while they hold most of what is above them. */
const OPENED_SHARE = 0.5;
const OPENED_ROWS = 40;

interface Row {
  node: number;
  level: number;
  element: HTMLTableRowElement;
  isOpen: boolean;
  hasChildren: boolean;
}

export class TreeView {
  readonly element: HTMLElement;
  private rows = new Map<HTMLElement, Row>();
  private tree: Tree | null = null;
  private readonly head = make("tr");
  private readonly body = make("tbody");

  constructor(
    private readonly report: Report, private readonly choice: Choice, label: string,
    private readonly onMenu: (tree: Tree, node: number, x: number, y: number) => void,
  ) {
    this.element = make("table", { role: "treegrid", "aria-label": label, class: "tree" },
      make("thead", {}, this.head), this.body);
    this.body.addEventListener("contextmenu", (event) => this.openMenu(event));
    this.body.addEventListener("keydown", (event) => this.press(event));
    this.body.addEventListener("click", (event) => this.click(event));
  }

  show(tree: Tree): void {
    this.tree = tree;
    this.showHead(tree);
    this.rows = new Map();
    const root = this.makeRow(ROOT, 1);
    this.body.replaceChildren(root.element);
    root.element.tabIndex = 0;
    this.openHeaviest(root);
  }

  private showHead(tree: Tree): void {
    const titles = this.report.before
      ? ["Function", "Before", "After", "Growth"] : ["Function", "Total", "Share", tree.selfTitle];
    this.head.replaceChildren(...titles.map((title, i) =>
      make("th", { scope: "col", class: i ? "number" : "text" }, title)));
  }

  private openHeaviest(root: Row): void {
    let row: Row | undefined = root;
    for (let opened = 0; row && row.hasChildren && opened < OPENED_ROWS; opened++) {
      this.open(row);
      const first: Row | undefined = this.rows.get(row.element.nextElementSibling as HTMLElement);
      const share: number = first ? this.rank(first.node) / (this.rank(row.node) || 1) : 0;
      row = share >= OPENED_SHARE ? first : undefined;
    }
  }

  /* ---- rows ---- */

  private theTree(): Tree {
    return this.tree as Tree;
  }

  private rank(node: number): number {
    const tree = this.theTree();
    return this.report.before ? Math.abs(tree.sum(node) - tree.base(node)) : tree.sum(node);
  }

  /** Heaviest first; without those that have nothing of the chosen figure. */
  private childrenOf(node: number): number[] {
    const tree = this.theTree();
    return Array.from(tree.children(node))
      .filter((child) => tree.sum(child) !== 0 || tree.base(child) !== 0)
      .sort((a, b) => this.rank(b) - this.rank(a));
  }

  private figureCells(node: number): HTMLElement[] {
    const tree = this.theTree();
    const { unit } = this.choice;
    const cell = (text: string, figure: number, style = "") =>
      make("td", { class: `number${style}`, role: "gridcell", title: formatExact(figure, unit), "data-figure": figure }, text);
    const sum = tree.sum(node);
    if (!this.report.before)
      return [
        cell(formatFigure(sum, unit), sum),
        cell(formatPercent(sum, tree.sum(ROOT)), sum, " muted"),
        cell(formatFigure(tree.self(node), unit), tree.self(node)),
      ];
    const growth = sum - tree.base(node);
    return [
      cell(formatFigure(tree.base(node), unit), tree.base(node)),
      cell(formatFigure(sum, unit), sum),
      cell(formatGrowth(growth, unit), growth, growth > 0 ? " grew" : growth < 0 ? " shrank" : ""),
    ];
  }

  private makeRow(node: number, level: number): Row {
    const hasChildren = this.childrenOf(node).length > 0;
    const name = make("td", { role: "gridcell", class: "text" },
      make("span", { class: "twist", "aria-hidden": "true" }, hasChildren ? "▸" : ""),
      make("span", { class: "name" }, nameOf(this.report, this.theTree(), node)),
      make("span", { class: "place" }, placeOf(this.report, this.theTree(), node)));
    name.style.setProperty("--level", String(Math.min(level - 1, DEEPEST_INDENT)));
    const element = make("tr", { role: "row", "aria-level": level, tabindex: -1 }, name, ...this.figureCells(node));
    if (hasChildren) element.setAttribute("aria-expanded", "false");
    const row = { node, level, element, isOpen: false, hasChildren };
    this.rows.set(element, row);
    return row;
  }

  private mark(row: Row, isOpen: boolean): void {
    row.isOpen = isOpen;
    row.element.setAttribute("aria-expanded", String(isOpen));
    (row.element.querySelector(".twist") as HTMLElement).textContent = isOpen ? "▾" : "▸";
  }

  private open(row: Row): void {
    if (row.isOpen || !row.hasChildren) return;
    this.mark(row, true);
    this.insertChildren(row, row.element, this.childrenOf(row.node));
  }

  /** Rows of the first of `children` after `place`, and one that stands for the rest. */
  private insertChildren(row: Row, place: HTMLElement, children: number[]): void {
    const elements = children.slice(0, CHILDREN_SHOWN)
      .map((child) => this.makeRow(child, row.level + 1).element);
    if (children.length > CHILDREN_SHOWN)
      elements.push(this.makeMoreRow(row, children.slice(CHILDREN_SHOWN)));
    place.after(...elements);
  }

  private makeMoreRow(row: Row, rest: number[]): HTMLTableRowElement {
    const text = make("button", { type: "button", class: "name" }, `${rest.length} more`);
    const cell = make("td", { role: "gridcell", class: "text", colspan: 4 }, text);
    cell.style.setProperty("--level", String(Math.min(row.level, DEEPEST_INDENT)));
    const element = make("tr", { role: "row", "aria-level": row.level + 1 }, cell);
    text.addEventListener("click", () => {
      this.insertChildren(row, element, rest);
      this.focus(element.nextElementSibling as HTMLElement);
      element.remove();
    });
    return element;
  }

  private close(row: Row): void {
    if (!row.isOpen) return;
    this.mark(row, false);
    for (let next = row.element.nextElementSibling; next && levelOf(next) > row.level; ) {
      const gone = next as HTMLElement;
      next = next.nextElementSibling;
      this.rows.delete(gone);
      gone.remove();
    }
  }

  /* ---- mouse and keyboard ---- */

  private focus(element: HTMLElement | null): void {
    if (!element || !this.rows.has(element)) return;
    this.body.querySelector<HTMLElement>("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    element.tabIndex = 0;
    element.focus();
  }

  private toggle(row: Row): void {
    if (row.isOpen) this.close(row);
    else this.open(row);
  }

  private rowOf(event: Event): Row | undefined {
    return this.rows.get((event.target as HTMLElement).closest("tr") as HTMLElement);
  }

  private click(event: MouseEvent): void {
    const row = this.rowOf(event);
    if (!row) return;
    this.toggle(row);
    this.focus(row.element);
  }

  private openMenu(event: MouseEvent): void {
    const row = this.rowOf(event);
    if (!row || !this.theTree().name(row.node)) return;
    event.preventDefault();
    const place = row.element.getBoundingClientRect();
    const isMouse = event.button === 2;
    this.onMenu(this.theTree(), row.node, isMouse ? event.clientX : place.left, isMouse ? event.clientY : place.bottom);
  }

  private press(event: KeyboardEvent): void {
    const row = this.rowOf(event);
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const { element } = row;
    const actions: Record<string, () => void> = {
      ArrowDown: () => this.focus(element.nextElementSibling as HTMLElement),
      ArrowUp: () => this.focus(element.previousElementSibling as HTMLElement),
      ArrowRight: () => (row.isOpen ? this.focus(element.nextElementSibling as HTMLElement) : this.open(row)),
      ArrowLeft: () => (row.isOpen ? this.close(row) : this.focus(this.parentOf(row))),
      Enter: () => this.toggle(row),
      " ": () => this.toggle(row),
      Home: () => this.focus(this.body.firstElementChild as HTMLElement),
      End: () => this.focus(this.body.lastElementChild as HTMLElement),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  private parentOf(row: Row): HTMLElement | null {
    let element = row.element.previousElementSibling;
    while (element && levelOf(element) >= row.level) element = element.previousElementSibling;
    return element as HTMLElement | null;
  }
}

function levelOf(row: Element): number {
  return Number(row.getAttribute("aria-level"));
}
