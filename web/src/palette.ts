// SPDX-License-Identifier: BSD-2-Clause
// Colours of frames: by module, or by growth where two profiles are compared. Both are those of the
// pictures of `heapline flame` (src/view/pictures/palette.c, flame_modules.c); darker in the dark theme.

import { sumSubtrees } from "./aggregate";
import { Report } from "./data";
import { basename } from "./format";

const MODULE_COLORS = [
  0xfaaab8, 0xffbcb7, 0xfaaf97, 0xffc39a, 0xedb980, 0xf3cf8b, 0xd4c57c, 0xd4db92, 0xb2d08d, 0xb0e5ac, 0x8ed7ad, 0x8fe9ce,
  0x75d8cf, 0x83e7f0, 0x77d3ed, 0x93dfff, 0x92caff, 0xb3d5ff, 0xb5bfff, 0xd6c9ff, 0xd5b4f4, 0xf3c0f9, 0xedadda, 0xffbbda,
];
/** From gone to new; the middle one is the same. */
const GROWTH_COLORS = [
  0x4ea6fb, 0x67b1fa, 0x7ebaf9, 0x93c4f8, 0xa7cef6, 0xbcd7f4, 0xe1e1e1, 0xf3c8c2, 0xf4b9b0, 0xf4a99f, 0xf39a8e, 0xf2897d,
  0xf0796b,
];
const GROWTH_STEPS = 6;
const GROWTH_IGNORED = 0.005;
const COLOR_STEP = 7;
const DARK_SHARE = 0.45;
const LEGEND_ENTRIES = 6;

export interface LegendEntry {
  color: string;
  text: string;
}

function css(rgb: number, dark: boolean): string {
  const share = dark ? DARK_SHARE : 1;
  return `rgb(${[16, 8, 0].map((shift) => Math.round(((rgb >> shift) & 255) * share)).join(" ")})`;
}

/** hl_hash_bytes() of src/base/index.c. */
function hashOf(text: string): number {
  const word = (number: bigint) => BigInt.asUintN(64, number);
  const bytes = new TextEncoder().encode(text);
  const length = BigInt(bytes.length);
  const factor = 0x9e3779b97f4a7c15n;
  let hash = length;
  for (let at = 0; at < bytes.length; at += 8) {
    let part = 0n;
    bytes.subarray(at, at + 8).forEach((byte, i) => (part |= BigInt(byte) << BigInt(8 * i)));
    hash = word((hash ^ part) * factor);
    hash ^= hash >> 29n;
  }
  hash = word(hash * factor + length);
  for (const multiplier of [0xff51afd7ed558ccdn, 0xc4ceb9fe1a85ec53n]) hash = word((hash ^ (hash >> 33n)) * multiplier);
  return Number(BigInt.asUintN(32, hash ^ (hash >> 33n)));
}

/** Modules with any area in the flame graph that the page opens with, the largest first. */
function modulesByArea(report: Report): number[] {
  const { frames, functions, nodes, summary } = report;
  const column = report.after.get(`${summary.value}_${summary.unit}`) ?? report.after.values().next().value;
  const sums = sumSubtrees(report, column as Float64Array);
  const areas = new Float64Array(summary.modules.length);
  for (let i = 1; i < nodes.count; i++)
    areas[functions.module[frames.functionId[nodes.frame[i]]]] += Math.max(sums[i], 0);
  return [...areas.keys()].filter((module) => areas[module] > 0).sort((a, b) => areas[b] - areas[a] || a - b);
}

/** A colour that the module's name prefers, but with its neighbours for one module alone. */
function chooseColors(report: Report, modules: number[]): Map<number, number> {
  const count = MODULE_COLORS.length;
  const taken = new Set<number>();
  const colors = new Map<number, number>();
  for (const module of modules) {
    let color = hashOf(basename(report.summary.modules[module].path)) % count;
    for (let tries = 0; taken.has(color) && tries < count; tries++) color = (color + COLOR_STEP) % count;
    if (taken.has(color)) taken.clear(); // modules have to share colours
    for (const near of [-1, 0, 1]) taken.add((color + near + count) % count);
    colors.set(module, color);
  }
  return colors;
}

/** The colour's place in GROWTH_COLORS: the farther from the middle, the larger the share that is new, or gone. */
export function growthStep(before: number, after: number): number {
  const larger = Math.max(before, after);
  const growth = larger > 0 ? (after - before) / larger : 0;
  const size = Math.abs(growth);
  const step = size <= GROWTH_IGNORED ? 0 : size < 1 ? 1 + Math.floor(size * GROWTH_STEPS) : GROWTH_STEPS;
  return GROWTH_STEPS + Math.sign(growth) * step;
}

export class Palette {
  private readonly modules: number[];
  private readonly colors: Map<number, number>;

  /** Where all is in one module its functions have colours of their own. */
  private readonly isByFunction: boolean;

  constructor(private readonly report: Report) {
    this.modules = modulesByArea(report);
    this.colors = chooseColors(report, this.modules);
    this.isByFunction = this.modules.length < 2;
  }

  private ofModule(module: number, dark: boolean): string {
    return css(MODULE_COLORS[this.colors.get(module) ?? 0], dark);
  }

  byModule(frame: number, dark: boolean): string {
    const { frames, functions, texts } = this.report;
    if (this.isByFunction)
      return css(MODULE_COLORS[hashOf(texts[functions.name[frames.functionId[frame]]]) % MODULE_COLORS.length], dark);
    return this.ofModule(functions.module[frames.functionId[frame]], dark);
  }

  byGrowth(before: number, after: number, dark: boolean): string {
    return css(GROWTH_COLORS[growthStep(before, after)], dark);
  }

  legend(dark: boolean): LegendEntry[] {
    const { modules } = this.report.summary;
    if (this.isByFunction) return [];
    const entries = this.modules.slice(0, LEGEND_ENTRIES).map((module) => ({
      color: this.ofModule(module, dark),
      text: modules[module].path ? basename(modules[module].path) : "no module",
    }));
    return entries;
  }
}
