// SPDX-License-Identifier: BSD-2-Clause
// The tables of functions and of source lines: flat and cum, and their growth.

import { Keys, sumByKey, Sums } from "./aggregate";
import { Choice, Unit } from "./choice";
import { Report } from "./data";
import { make } from "./dom";
import { formatExact, formatFigure, formatGrowth, formatPercent } from "./format";
import { Column, Table } from "./table";

/** How the rows of one table are called. */
export interface RowWords {
  title: string;
  caption: string;
  name(key: number): string;
  /** Dimmed, behind the name. */
  place(key: number): string;
  /** What a click on the name does. */
  open(key: number): void;
  /** Opens the menu of the row's function. */
  menu(key: number, x: number, y: number): void;
}

function numberCell(figure: number, unit: Unit, total: number): HTMLElement {
  const share = total > 0 ? Math.max(0, Math.min(100, (100 * figure) / total)) : 0;
  const cell = make("td", { class: "number", title: formatExact(figure, unit), "data-figure": figure },
    formatFigure(figure, unit));
  cell.style.setProperty("--share", `${share}%`);
  return cell;
}

function growthCell(growth: number, unit: Unit): HTMLElement {
  const direction = growth > 0 ? " grew" : growth < 0 ? " shrank" : "";
  return make("td", { class: `number${direction}`, title: formatExact(growth, unit), "data-figure": growth },
    formatGrowth(growth, unit));
}

export class SumsView {
  private readonly table: Table;
  private isStale = true;

  constructor(
    private readonly report: Report, private readonly choice: Choice, panel: HTMLElement,
    private readonly keys: () => Keys, private readonly words: RowWords,
  ) {
    this.table = new Table(words.caption, (key) => `${words.name(key)} ${words.place(key)}`);
    panel.append(this.table.element);
    choice.listen(() => (this.isStale = true));
  }

  show(): void {
    if (!this.isStale) return;
    this.isStale = false;
    const keys = this.keys();
    const before = this.report.before;
    const after = sumByKey(this.report, keys, this.choice.column(this.report.after));
    if (before) this.showGrowth(after, sumByKey(this.report, keys, this.choice.column(before)));
    else this.showSums(keys, after);
  }

  private nameColumn(): Column {
    const { words } = this;
    return {
      title: words.title, hint: "In the order of the alphabet", isNumber: false,
      key: (key) => words.name(key),
      cell: (key) => make("th", { scope: "row", class: "text" },
        make("button", { type: "button", class: "name", title: `Show in the flame graph: ${words.name(key)}`,
          click: () => words.open(key) }, words.name(key)),
        make("span", { class: "place" }, words.place(key)),
        make("button", { type: "button", class: "more", "aria-label": `What to do with ${words.name(key)}`, title: "More",
          click: (event) => words.menu(key, (event as MouseEvent).clientX, (event as MouseEvent).clientY) }, "⋯")),
    };
  }

  private figureColumn(title: string, hint: string, unit: Unit, figures: Float64Array, total: number): Column {
    return {
      title, hint, isNumber: true, key: (key) => figures[key],
      cell: (key) => numberCell(figures[key], unit, total),
    };
  }

  private shareColumn(title: string, hint: string, figures: Float64Array, total: number): Column {
    return {
      title, hint, isNumber: true, key: (key) => figures[key],
      cell: (key) => make("td", { class: "number muted" }, formatPercent(figures[key], total)),
    };
  }

  private growthColumn(title: string, hint: string, after: Float64Array, before: Float64Array): Column {
    const { unit } = this.choice;
    return {
      title, hint, isNumber: true, key: (key) => after[key] - before[key],
      cell: (key) => growthCell(after[key] - before[key], unit),
    };
  }

  private showSums(keys: Keys, sums: Sums): void {
    const { choice, report } = this;
    const { unit } = choice;
    const total = sums.flat.reduce((sum, figure) => sum + figure, 0);
    const other: Unit = unit === "bytes" ? "objects" : "bytes";
    const others = sumByKey(report, keys, choice.column(report.after, other));
    const columns = [
      this.nameColumn(),
      this.figureColumn("Flat", "What it allocated itself", unit, sums.flat, total),
      this.shareColumn("Flat %", "Flat, of the total", sums.flat, total),
      this.figureColumn("Cum", "With all that it called", unit, sums.cum, total),
      this.shareColumn("Cum %", "Cum, of the total", sums.cum, total),
    ];
    if (choice.knows(choice.value, other))
      columns.push(this.figureColumn(other === "objects" ? "Blocks" : "Bytes",
        `Flat in ${other === "objects" ? "blocks" : "bytes"}`, other, others.flat, 0));
    this.table.show(columns, this.keysWith([sums, others]), 1);
  }

  private showGrowth(after: Sums, before: Sums): void {
    const { unit } = this.choice;
    this.table.show([
      this.nameColumn(),
      this.figureColumn("Before", "Flat, in the earlier profile", unit, before.flat, 0),
      this.figureColumn("After", "Flat, in the later profile", unit, after.flat, 0),
      this.growthColumn("Growth", "Flat, after less before", after.flat, before.flat),
      this.figureColumn("Cum before", "With all that it called, in the earlier profile", unit, before.cum, 0),
      this.figureColumn("Cum after", "With all that it called, in the later profile", unit, after.cum, 0),
      this.growthColumn("Cum growth", "With all that it called, after less before", after.cum, before.cum),
    ], this.keysWith([after, before]), 3);
  }

  private keysWith(all: Sums[]): number[] {
    const keys = [];
    for (let key = 1; key < all[0].flat.length; key++)
      if (all.some((sums) => sums.flat[key] !== 0 || sums.cum[key] !== 0)) keys.push(key);
    return keys;
  }
}
