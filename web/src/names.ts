// SPDX-License-Identifier: BSD-2-Clause
// What a tree's node is called, and where it is.

import { Report } from "./data";
import { basename } from "./format";
import { ROOT, Tree } from "./tree";

export function nameOf(report: Report, tree: Tree, node: number): string {
  return node === ROOT ? "all" : report.texts[tree.name(node)];
}

/** "file.c:12", or the module's file name. */
export function placeOfFunction(report: Report, id: number): string {
  const { functions, texts, summary } = report;
  if (functions.file[id]) return `${basename(texts[functions.file[id]])}:${functions.line[id]}`;
  return basename(summary.modules[functions.module[id]].path);
}

export function placeOf(report: Report, tree: Tree, node: number): string {
  return node === ROOT ? "" : placeOfFunction(report, report.frames.functionId[tree.frame(node)]);
}
