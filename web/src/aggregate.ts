// SPDX-License-Identifier: BSD-2-Clause
// Sums by function or source line, by the same rules as src/profile/aggregate.c.

import { Report } from "./data";

export interface Sums {
  /** By key: what was allocated there. */
  flat: Float64Array;
  /** By key: and in all that it called; a key that recurs in one stack counts once. */
  cum: Float64Array;
}

/** What frames have in common. */
export interface Keys {
  ofFrame: Uint32Array;
  /** One more than there are; 0 is not a key. */
  count: number;
  /** By key: one of its frames. */
  frame: Uint32Array;
}

export function keysByFunction(report: Report): Keys {
  const { frames, functions } = report;
  const frame = new Uint32Array(functions.count);
  for (let i = frames.count - 1; i > 0; i--) frame[frames.functionId[i]] = i;
  return { ofFrame: frames.functionId, count: functions.count, frame };
}

/** By file and line; by function where lines are not known. */
export function keysByLine(report: Report): Keys {
  const { frames } = report;
  const known = new Map<string, number>();
  const keys: Keys = { ofFrame: new Uint32Array(frames.count), count: 1, frame: new Uint32Array(frames.count) };
  for (let i = 1; i < frames.count; i++) {
    const identity = frames.file[i] ? `${frames.file[i]}:${frames.line[i]}` : `${frames.functionId[i]}`;
    const key = known.get(identity) ?? keys.count++;
    if (!keys.frame[key]) {
      known.set(identity, key);
      keys.frame[key] = i;
    }
    keys.ofFrame[i] = key;
  }
  return keys;
}

/** By node: the figure of the node and of all below it. */
export function sumSubtrees(report: Report, column: Float64Array): Float64Array {
  const { nodes, leaves } = report;
  const sums = new Float64Array(nodes.count);
  for (let i = 0; i < leaves.length; i++) sums[leaves[i]] += column[i];
  for (let i = nodes.count - 1; i > 0; i--) sums[nodes.parent[i]] += sums[i];
  return sums;
}

export function sumByKey(report: Report, keys: Keys, column: Float64Array): Sums {
  const { nodes, leaves } = report;
  const sums = sumSubtrees(report, column);
  const flat = new Float64Array(keys.count);
  const cum = new Float64Array(keys.count);
  // Nodes up to coveredUntil[key] lie below a node of the same key.
  const coveredUntil = new Uint32Array(keys.count);
  for (let i = 0; i < leaves.length; i++) flat[keys.ofFrame[nodes.frame[leaves[i]]]] += column[i];
  for (let i = 1; i < nodes.count; i++) {
    const key = keys.ofFrame[nodes.frame[i]];
    if (i < coveredUntil[key]) continue;
    coveredUntil[key] = nodes.end[i];
    cum[key] += sums[i];
  }
  return { flat, cum };
}
