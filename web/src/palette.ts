// SPDX-License-Identifier: BSD-2-Clause
// Colours of frames: by module, or by growth where two profiles are compared.

import { Keys, sumByKey } from "./aggregate";
import { Report } from "./data";
import { basename } from "./format";

const HUES = [26, 208, 152, 268, 345, 48];
const GREW_HUE = 8;
const SHRANK_HUE = 212;

export interface LegendEntry {
  color: string;
  text: string;
}

function modulesByWeight(report: Report): number[] {
  const { frames, functions, summary } = report;
  const keys: Keys = {
    ofFrame: frames.functionId.map((id) => functions.module[id]),
    count: summary.modules.length,
    frame: new Uint32Array(summary.modules.length),
  };
  const column = report.after.get("alloc_bytes") ?? report.after.values().next().value;
  const { flat, cum } = sumByKey(report, keys, column as Float64Array);
  const used = [...flat.keys()].filter((module) => cum[module] > 0);
  return used.sort((a, b) => flat[b] - flat[a] || cum[b] - cum[a]);
}

/** A number from -1 to 1, always the same for a name, so that neighbours can be told apart. */
function variation(name: number): number {
  return (Math.imul(name, 0x9e3779b1) >>> 24) / 127.5 - 1;
}

export class Palette {
  /** By module; undefined: one of the many light ones. */
  private readonly hues = new Map<number, number>();
  private readonly modules: number[];

  constructor(private readonly report: Report) {
    this.modules = modulesByWeight(report);
    this.modules.slice(0, HUES.length).forEach((module, i) => this.hues.set(module, HUES[i]));
  }

  private ofModule(module: number, variant: number, dark: boolean): string {
    const hue = this.hues.get(module);
    const lightness = (dark ? 34 : 81) + 4 * variant;
    if (hue === undefined) return `hsl(220 6% ${lightness}%)`;
    return `hsl(${hue + 12 * variant} ${dark ? 32 : 70}% ${lightness}%)`;
  }

  byModule(frame: number, name: number, dark: boolean): string {
    const { frames, functions } = this.report;
    return this.ofModule(functions.module[frames.functionId[frame]], variation(name), dark);
  }

  /** The stronger, the larger the share that is new, or gone; as in the pictures of `heapline flame`. */
  byGrowth(before: number, after: number, dark: boolean): string {
    const growth = (after - before) / (Math.max(before, after) || 1);
    const strength = Math.sqrt(Math.min(1, Math.abs(growth)));
    const hue = growth > 0 ? GREW_HUE : SHRANK_HUE;
    const lightness = dark ? 26 + 18 * strength : 91 - 24 * strength;
    return `hsl(${hue} ${Math.round((dark ? 45 : 80) * strength)}% ${lightness}%)`;
  }

  legend(dark: boolean): LegendEntry[] {
    const { modules } = this.report.summary;
    const entries = this.modules.slice(0, HUES.length).map((module) => ({
      color: this.ofModule(module, 0, dark),
      text: modules[module].path ? basename(modules[module].path) : "no module",
    }));
    if (this.modules.length > HUES.length)
      entries.push({ color: `hsl(220 6% ${dark ? 34 : 80}%)`, text: "others" });
    return entries;
  }
}
