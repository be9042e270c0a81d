// SPDX-License-Identifier: BSD-2-Clause
// Where the frames of a flame graph lie, row by row. What is narrower than a pixel is not looked
// into, so the work depends on the window and not on the profile.

import { ROOT, Tree } from "./tree";

export interface Box {
  /** OMITTED: a run of siblings that are too narrow. */
  node: number;
  x: number;
  width: number;
}

export const OMITTED = -1;
const NARROWEST = 1;

export interface Layout {
  rows: Box[][];
  /** The row of the frame that is zoomed on; those before it are its callers. */
  zoomRow: number;
}

function layOutChildren(tree: Tree, box: Box, row: Box[]): void {
  const scale = box.width / tree.weight(box.node);
  let x = box.x;
  let omitted = 0;
  const flush = () => {
    if (omitted >= NARROWEST) row.push({ node: OMITTED, x: x - omitted, width: omitted });
    omitted = 0;
  };
  const children = tree.children(box.node);
  for (let i = 0; i < children.length; i++) {
    const width = tree.weight(children[i]) * scale;
    if (width >= NARROWEST) {
      flush();
      row.push({ node: children[i], x, width });
    } else {
      omitted += width;
    }
    x += width;
  }
  flush();
}

function rowsFromRoot(tree: Tree, zoom: number, width: number): Box[][] {
  const rows = [];
  for (let node = zoom; ; node = tree.parent(node)) {
    rows.unshift([{ node, x: 0, width }]);
    if (node === ROOT) return rows;
  }
}

export function layOut(tree: Tree, zoom: number, width: number): Layout {
  const rows = rowsFromRoot(tree, zoom, width);
  const zoomRow = rows.length - 1;
  for (let row = rows[zoomRow]; row.length; row = rows[rows.length - 1]) {
    const next: Box[] = [];
    for (const box of row)
      if (box.node !== OMITTED && tree.weight(box.node) > 0) layOutChildren(tree, box, next);
    if (!next.length) break;
    rows.push(next);
  }
  return { rows, zoomRow };
}

/** The place of the box at `x`, or -1. */
export function findBox(row: Box[], x: number): number {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].x + row[middle].width <= x) low = middle + 1;
    else high = middle;
  }
  return low < row.length && row[low].x <= x ? low : -1;
}
