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
  /** The first decides, and each later one where those before it are equal. */
  private order: { column: number; isDescending: boolean }[] = [];
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
      this.order = [{ column: sortColumn, isDescending: true }];
    }
    this.columns = columns;
    this.rows = rows;
    this.sort();
  }

  private sort(): void {
    const keys = this.order.map(({ column, isDescending }) => ({
      ofRow: new Map(this.rows.map((row) => [row, this.columns[column].key(row)])),
      sign: isDescending ? -1 : 1,
    }));
    this.rows.sort((a, b) => {
      for (const { ofRow, sign } of keys) {
        const left = ofRow.get(a) as number | string;
        const right = ofRow.get(b) as number | string;
        if (left !== right) return left < right ? -sign : sign;
      }
      return a - b;
    });
    this.makeHead();
    this.applyFilter(false);
  }

  private makeHead(): void {
    const heads = this.columns.map((column, i) => {
      const place = this.order.findIndex((one) => one.column === i);
      const isDescending = this.order[place]?.isDescending;
      const arrow = place < 0 ? "" : (isDescending ? "▾" : "▴") + (place ? String(place + 1) : "");
      const button = make("button", {
        type: "button", title: `${column.hint}. With Shift: sort by it where the others are equal`,
        click: (event) => this.sortBy(i, (event as MouseEvent).shiftKey),
      }, make("span", { class: "arrow", "aria-hidden": "true" }, arrow), column.title);
      return make("th", {
        scope: "col", class: column.isNumber ? "number" : "text",
        "aria-sort": place === 0 ? (isDescending ? "descending" : "ascending") : "none",
      }, button);
    });
    const focused = [...this.head.children].findIndex((cell) => cell.contains(document.activeElement));
    this.head.replaceChildren(...heads);
    if (focused >= 0) heads[focused]?.querySelector("button")?.focus();
  }

  private sortBy(column: number, isLater: boolean): void {
    const known = this.order.find((one) => one.column === column);
    const isDescending = known ? !known.isDescending : this.columns[column].isNumber;
    if (!isLater) this.order = [{ column, isDescending }];
    else if (known) known.isDescending = isDescending;
    else this.order.push({ column, isDescending });
    this.sort();
    const words = this.order.map((one) =>
      `${this.columns[one.column].title}, ${one.isDescending ? "descending" : "ascending"}`);
    announce(`Sorted by ${words.join(", then by ")}`);
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
