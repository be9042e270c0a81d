// SPDX-License-Identifier: BSD-2-Clause
// What the flame graph and the call tree ask of a tree, whichever way it grows.

export const ROOT = 0;

export interface Tree {
  /** Children in the order of their names; found when first asked for. */
  children(node: number): ArrayLike<number>;
  parent(node: number): number;
  /** Id of the name; 0 for the root. */
  name(node: number): number;
  /** One of the node's frames, for module, file and line; 0 for the root. */
  frame(node: number): number;
  /** The chosen figure, with what is below. */
  sum(node: number): number;
  /** The same in the earlier profile; 0 when there is none. */
  base(node: number): number;
  /** What was allocated there itself; in a reversed tree, by stacks whose outermost frame it is. */
  self(node: number): number;
  /** What self() is called. */
  readonly selfTitle: string;
  /** How wide the node is drawn; never negative, and never less than its children's sum. */
  weight(node: number): number;
}

/** How many ancestors `node` has. */
export function depthOf(tree: Tree, node: number): number {
  let depth = 0;
  for (let at = node; at !== ROOT; at = tree.parent(at)) depth++;
  return depth;
}
