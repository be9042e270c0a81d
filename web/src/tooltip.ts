// SPDX-License-Identifier: BSD-2-Clause
// What stands beside the pointer over a frame of the flame graph.

import { Choice } from "./choice";
import { Report } from "./data";
import { byId, make } from "./dom";
import { basename, formatExact, formatFigure, formatGrowth, formatPercent } from "./format";
import { OMITTED } from "./layout";
import { definitionOf, nameOf } from "./names";
import { ROOT, Tree } from "./tree";

const DISTANCE = 14;

function line(term: string, ...texts: string[]): HTMLElement {
  return make("div", { class: "tip-line" }, make("span", {}, term), make("span", {}, texts.join(" · ")));
}

function figureLines(report: Report, choice: Choice, tree: Tree, node: number): HTMLElement[] {
  const { unit } = choice;
  const sum = tree.sum(node);
  const lines = [
    line(report.before ? "after" : "total", formatFigure(sum, unit), formatPercent(sum, tree.sum(ROOT))),
  ];
  if (report.before) {
    lines.push(line("before", formatFigure(tree.base(node), unit)));
    lines.push(line("growth", formatGrowth(sum - tree.base(node), unit)));
  }
  lines.push(line(tree.selfTitle.toLowerCase(), formatFigure(tree.self(node), unit)));
  lines.push(line("exactly", formatExact(sum, unit)));
  return lines;
}

/** The module, and where the function is defined. */
function whereabouts(report: Report, tree: Tree, node: number): string[] {
  const { frames, functions } = report;
  if (!tree.name(node)) return [];
  const id = frames.functionId[tree.frame(node)];
  const definition = definitionOf(report, id);
  const module = basename(report.summary.modules[functions.module[id]].path) || "no module";
  return [module + (definition ? `, defined at ${definition}` : "")];
}

function place(tip: HTMLElement, x: number, y: number): void {
  const right = x + DISTANCE + tip.offsetWidth > window.innerWidth;
  const below = y + DISTANCE + tip.offsetHeight > window.innerHeight;
  tip.style.left = `${Math.max(4, right ? x - DISTANCE - tip.offsetWidth : x + DISTANCE)}px`;
  tip.style.top = `${Math.max(4, below ? y - DISTANCE - tip.offsetHeight : y + DISTANCE)}px`;
}

export function showTooltip(
  report: Report, choice: Choice, tree: Tree, node: number, x: number, y: number,
): void {
  const tip = byId("tip");
  if (node === OMITTED) {
    tip.replaceChildren("Frames too narrow to draw; zoom in to see them");
  } else {
    tip.replaceChildren(
      make("div", { class: "tip-name" }, nameOf(report, tree, node)),
      make("div", { class: "tip-place" }, ...whereabouts(report, tree, node)),
      ...figureLines(report, choice, tree, node),
    );
  }
  tip.hidden = false;
  place(tip, x, y);
}

export function hideTooltip(): void {
  byId("tip").hidden = true;
}
