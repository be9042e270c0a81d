// SPDX-License-Identifier: BSD-2-Clause
// Where the frames of a flame graph lie, row by row. Frames that are too narrow to draw are not looked
// into, so the work depends on the window and not on the profile.

import { depthOf, ROOT, Tree } from "./tree";

export interface Box {
  /** OMITTED: a run of siblings that are too narrow. */
  node: number;
  x: number;
  width: number;
}

export const OMITTED = -1;

export interface Layout {
  rows: Box[][];
  /** The row of the frame that is zoomed on; those before it are its callers. */
  zoomRow: number;
}

function layOutChildren(tree: Tree, box: Box, narrowest: number, row: Box[]): void {
  const scale = box.width / tree.weight(box.node);
  let x = box.x;
  let omitted = 0;
  const flush = () => {
    if (omitted >= narrowest) row.push({ node: OMITTED, x: x - omitted, width: omitted });
    omitted = 0;
  };
  const children = tree.children(box.node);
  for (let i = 0; i < children.length; i++) {
    const width = tree.weight(children[i]) * scale;
    if (width >= narrowest) {
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

/** `narrowest`: pixels that a frame needs to be drawn. */
export function layOut(tree: Tree, zoom: number, width: number, narrowest: number): Layout {
  const rows = rowsFromRoot(tree, zoom, width);
  const zoomRow = rows.length - 1;
  for (let row = rows[zoomRow]; row.length; row = rows[rows.length - 1]) {
    const next: Box[] = [];
    for (const box of row)
      if (box.node !== OMITTED && tree.weight(box.node) > 0) layOutChildren(tree, box, narrowest, next);
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

/** The widest of the children of `node` that are drawn; itself where there is none. */
export function widestChild(tree: Tree, layout: Layout, node: number): number {
  const row = layout.rows[depthOf(tree, node) + 1] ?? [];
  const children = row.filter((box) => box.node !== OMITTED && tree.parent(box.node) === node);
  return children.reduce((widest, box) => (box.width > widest.width ? box : widest), { node, x: 0, width: 0 }).node;
}

/** The node that is drawn beside `node`: before it, direction -1, or after it; itself where there is none. */
export function neighbour(row: Box[], node: number, direction: number): number {
  const drawn = row.filter((box) => box.node !== OMITTED);
  return (drawn[drawn.findIndex((box) => box.node === node) + direction] ?? { node }).node;
}
