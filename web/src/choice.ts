// SPDX-License-Identifier: BSD-2-Clause
// What the reader of the page has chosen to see; every view follows it.

import { Figures, Report } from "./data";

export const VALUES = ["peak", "inuse", "alloc", "temporary", "slack"] as const;
export const UNITS = ["bytes", "objects"] as const;
/** What a frame's width stands for where two profiles are compared. */
export const WIDTHS = ["after", "before", "growth"] as const;

export type Value = typeof VALUES[number];
export type Unit = typeof UNITS[number];
export type Width = typeof WIDTHS[number];

export interface ValueWords {
  title: string;
  meaning: string;
}

export const VALUE_WORDS: Record<Value, ValueWords> = {
  peak: { title: "Peak", meaning: "in use when the total was highest" },
  inuse: { title: "In use", meaning: "not freed when the recording ended" },
  alloc: { title: "Allocated", meaning: "ever allocated, freed or not" },
  temporary: { title: "Temporary", meaning: "freed at once, before the thread allocated again" },
  slack: { title: "Slack", meaning: "set aside by the allocator beyond what was requested" },
};

export const UNIT_WORDS: Record<Unit, string> = { bytes: "Bytes", objects: "Blocks" };

type Listener = () => void;

export class Choice {
  private wantedValue: Value = "peak";
  private wantedUnit: Unit = "bytes";
  private wantedWidth: Width = "after";
  /** Figures are those of a moment of the timeline. */
  isMoment = false;
  /** By leaf: 1 where the filter leaves its figures; null: everywhere. */
  private kept: Uint8Array | null = null;
  private unfiltered: { after: Figures; before: Figures | null };
  private readonly listeners: Listener[] = [];

  constructor(private readonly report: Report) {
    this.unfiltered = { after: report.after, before: report.before };
    this.setValue(report.summary.value as Value);
    this.setUnit(report.summary.unit as Unit);
  }

  /** Calls `listener` after every change. */
  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }

  knows(value: Value, unit: Unit): boolean {
    return this.report.after.has(`${value}_${unit}`);
  }

  has(value: Value): boolean {
    return UNITS.some((unit) => this.knows(value, unit));
  }

  /** The value that was asked for, or one that is known. */
  get value(): Value {
    if (this.has(this.wantedValue)) return this.wantedValue;
    return VALUES.find((value) => this.has(value)) ?? "alloc";
  }

  get width(): Width {
    return this.report.before ? this.wantedWidth : "after";
  }

  /** The unit that was asked for, or the only one that the value is counted in. */
  get unit(): Unit {
    if (this.knows(this.value, this.wantedUnit)) return this.wantedUnit;
    return this.wantedUnit === "bytes" ? "objects" : "bytes";
  }

  setValue(value: Value): void {
    this.wantedValue = value;
    this.changed();
  }

  setUnit(unit: Unit): void {
    this.wantedUnit = unit;
    this.changed();
  }

  setWidth(width: Width): void {
    this.wantedWidth = width;
    this.changed();
  }

  /** Shows other figures of the leaves: of a moment, of a thread, or of the whole again. */
  setFigures(after: Figures, before: Figures | null, isMoment: boolean): void {
    this.unfiltered = { after, before };
    this.isMoment = isMoment;
    this.filterFigures();
  }

  get isFiltered(): boolean {
    return this.kept !== null;
  }

  /** Shows the figures of these leaves alone; null: of all. */
  setKept(kept: Uint8Array | null): void {
    this.kept = kept;
    this.filterFigures();
  }

  private filterFigures(): void {
    const { kept } = this;
    const filtered = (figures: Figures) => kept === null ? figures
      : new Map([...figures].map(([name, column]) => [name, column.map((figure, i) => kept[i] ? figure : 0)]));
    this.report.after = filtered(this.unfiltered.after);
    this.report.before = this.unfiltered.before && filtered(this.unfiltered.before);
    this.changed();
  }

  /** The chosen figures of the leaves. */
  column(figures: Figures, unit: Unit = this.unit): Float64Array {
    return figures.get(`${this.value}_${unit}`) ?? new Float64Array(this.report.leaves.length);
  }
}

export function total(figures: Figures, name: string): number {
  return (figures.get(name) ?? new Float64Array(0)).reduce((sum, figure) => sum + figure, 0);
}
