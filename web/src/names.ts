// SPDX-License-Identifier: BSD-2-Clause
// What a tree's node is called, and where it is.

import { Report } from "./data";
import { basename } from "./format";
import { Tree } from "./tree";

export function nameOf(report: Report, tree: Tree, node: number): string {
  return tree.name(node) ? report.texts[tree.name(node)] : "all";
}

/** "file.c", or the module's file name. */
export function placeOfFunction(report: Report, id: number): string {
  const { functions, texts, summary } = report;
  return basename(functions.file[id] ? texts[functions.file[id]] : summary.modules[functions.module[id]].path);
}

/** Where the function's definition begins: "src/file.c:12"; "" where that is not known. */
export function definitionOf(report: Report, id: number): string {
  const { functions, texts } = report;
  if (!functions.file[id]) return "";
  return texts[functions.file[id]] + (functions.line[id] ? `:${functions.line[id]}` : "");
}

export function placeOf(report: Report, tree: Tree, node: number): string {
  return tree.name(node) ? placeOfFunction(report, report.frames.functionId[tree.frame(node)]) : "";
}
