// SPDX-License-Identifier: BSD-2-Clause
// The head of the page: what was recorded, its totals, and what is missing.

import { Choice, total, Unit, UNITS, UNIT_WORDS, Value, VALUES, VALUE_WORDS } from "./choice";
import { Module, Report, Summary } from "./data";
import { byId, make } from "./dom";
import { basename, counted, formatBytes, formatDuration, formatExact, formatFigure, formatGrowth, formatPercent, printable } from "./format";
import { makeRadios, RadioOption } from "./radios";

function facts(summary: Summary): string[] {
  const { recording } = summary;
  const facts = [
    recording.name + (summary.base ? `, compared with ${summary.base.name}` : ""),
    recording.processes === 1 ? `pid ${recording.pid}` : "",
    recording.processes > 1 ? `${recording.processes} processes` : "",
    recording.duration_ms ? `ran ${formatDuration(recording.duration_ms)}` : "",
    recording.start.replace("T", " ").replace("Z", " UTC"),
    [summary.host, summary.kernel].filter(Boolean).join(", "),
    recording.processes ? `mode ${recording.mode}` : recording.source,
    recording.sample_bytes ? `sampled about every ${formatBytes(recording.sample_bytes)}: figures are estimates` : "",
    summary.filter,
  ];
  return facts.filter(Boolean);
}

function showTarget(summary: Summary): void {
  const command = summary.recording.command || summary.recording.name;
  const [program] = command.split(" ");
  document.title = printable(`${basename(program)} – heapline`);
  byId("program").textContent = printable(basename(program));
  if (summary.recording.command) byId("command").append(make("code", {}, command));
  byId("facts").append(...facts(summary).map((fact) => make("li", {}, fact)));
}

/* ---- totals ---- */

/** Beneath the figure of a value that is counted in one unit alone. */
function wordsOfOneUnit(value: Value, unit: Unit): string {
  if (value === "slack") return "beyond what was requested";
  if (value === "temporary") return "blocks, freed at once";
  return unit === "objects" ? "blocks" : "";
}

function figureText(report: Report, value: Value, unit: Unit): string {
  return formatFigure(total(report.after, `${value}_${unit}`), unit);
}

function growthLine(report: Report, value: Value, unit: Unit): HTMLElement | null {
  if (!report.before || !report.summary.base) return null; // of a range the timeline says it
  const name = `${value}_${unit}`;
  const before = total(report.before, name);
  const growth = total(report.after, name) - before;
  const style = growth > 0 ? "grew" : growth < 0 ? "shrank" : "muted";
  const share = before ? ` (${growth > 0 ? "+" : ""}${formatPercent(growth, before)})` : "";
  return make("span", { class: `tile-growth ${style}`, "data-figure": growth }, formatGrowth(growth, unit) + share);
}

/** What a sum over processes would else hide. */
function caveat(report: Report, choice: Choice, value: Value): HTMLElement | null {
  const { recording, filter } = report.summary;
  if (filter || choice.isFiltered) return null; // what it left out, processes still have
  const text =
    value === "peak" && recording.highest_peak_bytes !== undefined
      ? `sum of ${recording.processes} processes' peaks, the highest ${formatBytes(recording.highest_peak_bytes)} (pid ${recording.highest_peak_pid})`
    : value === "inuse" && recording.replaced_inuse_bytes
      ? `of which ${formatBytes(recording.replaced_inuse_bytes)} went when a program was replaced by exec`
    : "";
  return text ? make("span", { class: "tile-other" }, text) : null;
}

/** Of a moment all but one value are unknown. */
function tileOfMoment(report: Report, choice: Choice, value: Value): RadioOption<Value> {
  const isKnown = choice.has(value);
  const figure = make("span", { class: "tile-figure" }, isKnown ? figureText(report, value, "bytes") : "–");
  if (isKnown) figure.title = formatExact(total(report.after, `${value}_bytes`), "bytes");
  return {
    key: value,
    label: [
      make("span", { class: "tile-title" }, VALUE_WORDS[value].title), figure,
      make("span", { class: "tile-other" },
        isKnown ? `in ${counted(total(report.after, `${value}_objects`), "block")}` : "not known over time"),
    ],
  };
}

function tile(report: Report, choice: Choice, value: Value): RadioOption<Value> {
  const units = UNITS.filter((unit) => choice.knows(value, unit));
  const exact = units.map((unit) => formatExact(total(report.after, `${value}_${unit}`), unit));
  const { title, meaning } = VALUE_WORDS[value];
  const label: (HTMLElement | null)[] = [
    make("span", { class: "tile-title", title: meaning }, title),
    make("span", { class: "tile-figure", title: exact.join(", ") }, figureText(report, value, units[0])),
    make("span", { class: "tile-other" },
      units.length > 1 ? `in ${counted(total(report.after, `${value}_${units[1]}`), "block")}` : wordsOfOneUnit(value, units[0])),
    caveat(report, choice, value),
    growthLine(report, value, units[0]),
  ];
  return { key: value, label: label.filter((part): part is HTMLElement => part !== null) };
}

function showTotals(report: Report, choice: Choice): void {
  const values = VALUES.filter((value) => choice.has(value));
  let shown = report.after;
  const makeTiles = () => makeRadios("value", "What to show", "tiles",
    values.map((value) => (choice.isMoment ? tileOfMoment : tile)(report, choice, value)), (value) => choice.setValue(value));
  let tiles = makeTiles();
  const units = makeRadios("unit", "Unit", "segments",
    UNITS.map((unit) => ({ key: unit, label: [UNIT_WORDS[unit]] })), (unit) => choice.setUnit(unit));
  const place = byId("values");
  place.append(tiles.element);
  byId("units").append(units.element);
  const replaceTiles = () => {
    place.style.minHeight = `${place.offsetHeight}px`; // so that nothing below moves
    shown = report.after;
    tiles = makeTiles();
    place.replaceChildren(tiles.element);
  };
  const show = () => {
    if (shown !== report.after) replaceTiles();
    tiles.show(choice.value, (value) => choice.has(value));
    units.show(choice.unit, (unit) => choice.knows(choice.value, unit));
  };
  choice.listen(show);
  show();
}

/* ---- what is missing ---- */

function moduleRow(module: Module): HTMLElement {
  return make("tr", {},
    make("th", { scope: "row", class: "text", title: module.path }, basename(module.path)),
    make("td", { class: "text" }, module.symbols === "none" ? "no names" : `names from ${module.symbols}`),
    make("td", { class: "text" }, module.reason));
}

function showMissing(summary: Summary): void {
  byId("notes").append(...summary.notes.map((note) => make("li", {}, note)));
  const poor = summary.modules.filter((module) => module.reason && module.symbols !== "unused");
  if (!poor.length) return;
  const names = poor.slice(0, 3).map((module) => basename(module.path)).join(", ");
  byId("modules-summary").textContent =
    `No debug information for ${names}${poor.length > 3 ? ` and ${poor.length - 3} more` : ""}`;
  byId("modules-body").append(...poor.map(moduleRow));
  byId("modules").hidden = false;
}

export function showSummary(report: Report, choice: Choice): void {
  showTarget(report.summary);
  showTotals(report, choice);
  showMissing(report.summary);
}
