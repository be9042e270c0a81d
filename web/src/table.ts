// SPDX-License-Identifier: BSD-2-Clause
// A table that can be sorted and filtered; as many rows as one reads are made, more on request.

import { announce, make } from "./dom";
import { formatCount } from "./format";

export interface Column {
  title: string;
  /** What the title means. */
  hint: string;
  isNumber: boolean;
  /** What rows are sorted by. */
  key(row: number): number | string;
  cell(row: number): HTMLElement;
}

const FIRST_ROWS = 100;
const MORE_ROWS = 400;

export class Table {
  readonly element: HTMLElement;
  private columns: Column[] = [];
  private rows: number[] = [];
  private found: number[] = [];
  private sortColumn = 0;
  private isDescending = true;
  private shown = FIRST_ROWS;
  private readonly head = make("tr");
  private readonly body = make("tbody");
  private readonly count = make("p", { class: "muted" });
  private readonly more = make("button", { type: "button", click: () => this.showMore() }, "Show more");
  private readonly filter: HTMLInputElement;

  /** `textOf` gives what the filter box looks at. */
  constructor(caption: string, private readonly textOf: (row: number) => string) {
    this.filter = make("input", {
      type: "search", placeholder: "Filter", "aria-label": `Filter ${caption.toLowerCase()}`,
      input: () => this.applyFilter(true),
    });
    this.element = make("div", { class: "table-view" },
      make("div", { class: "bar" }, this.filter, this.count),
      make("div", { class: "table-scroll" },
        make("table", {}, make("caption", { class: "unseen" }, caption), make("thead", {}, this.head), this.body)),
      this.more);
  }

  /** Other rows, or other figures in them; the order stays the reader's while columns stay. */
  show(columns: Column[], rows: number[], sortColumn: number): void {
    const titles = (list: Column[]) => list.map((column) => column.title).join();
    if (titles(columns) !== titles(this.columns)) {
      this.sortColumn = sortColumn;
      this.isDescending = true;
    }
    this.columns = columns;
    this.rows = rows;
    this.sort();
  }

  private sort(): void {
    const { key } = this.columns[this.sortColumn];
    const keys = new Map(this.rows.map((row) => [row, key(row)]));
    const upward = (a: number, b: number) => {
      const left = keys.get(a) as number | string;
      const right = keys.get(b) as number | string;
      return left < right ? -1 : left > right ? 1 : 0;
    };
    const sign = this.isDescending ? -1 : 1;
    this.rows.sort((a, b) => sign * upward(a, b) || a - b);
    this.makeHead();
    this.applyFilter(false);
  }

  private makeHead(): void {
    const heads = this.columns.map((column, i) => {
      const isSorted = i === this.sortColumn;
      const button = make("button", { type: "button", title: column.hint, click: () => this.sortBy(i) },
        make("span", { class: "arrow", "aria-hidden": "true" }, isSorted ? (this.isDescending ? "▾" : "▴") : ""),
        column.title);
      return make("th", {
        scope: "col", class: column.isNumber ? "number" : "text",
        "aria-sort": isSorted ? (this.isDescending ? "descending" : "ascending") : "none",
      }, button);
    });
    const focused = [...this.head.children].findIndex((cell) => cell.contains(document.activeElement));
    this.head.replaceChildren(...heads);
    if (focused >= 0) heads[focused]?.querySelector("button")?.focus();
  }

  private sortBy(column: number): void {
    this.isDescending = column === this.sortColumn ? !this.isDescending : this.columns[column].isNumber;
    this.sortColumn = column;
    this.sort();
    const order = this.isDescending ? "descending" : "ascending";
    announce(`Sorted by ${this.columns[column].title}, ${order}`);
  }

  private applyFilter(isNews: boolean): void {
    const wanted = this.filter.value.toLowerCase();
    this.found = wanted ? this.rows.filter((row) => this.textOf(row).toLowerCase().includes(wanted)) : this.rows;
    this.shown = FIRST_ROWS;
    this.body.replaceChildren();
    this.makeRows(0);
    this.count.textContent = this.found.length === this.rows.length
      ? `${formatCount(this.rows.length)} rows`
      : `${formatCount(this.found.length)} of ${formatCount(this.rows.length)} rows`;
    if (isNews) announce(this.count.textContent);
  }

  private makeRows(from: number): void {
    for (const row of this.found.slice(from, this.shown))
      this.body.append(make("tr", {}, ...this.columns.map((column) => column.cell(row))));
    this.more.hidden = this.shown >= this.found.length;
  }

  private showMore(): void {
    const from = this.shown;
    this.shown += MORE_ROWS;
    this.makeRows(from);
  }
}
