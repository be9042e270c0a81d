// SPDX-License-Identifier: BSD-2-Clause
// Numbers as people read them, in the same form as heapline's text (src/view/format.c).

import { Unit } from "./choice";

const PREFIXES = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

/** "1 stack", "1,234 stacks". */
export function counted(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** As printf("%.1f"), which takes the even one of two that are equally near: 1.25 is 1.2. */
function withTenths(number: number): string {
  return (Math.abs(number) % 1 === 0.25 ? number - Math.sign(number) * 0.05 : number).toFixed(1);
}

export function formatBytes(bytes: number): string {
  let scaled = Math.abs(bytes);
  if (scaled < 1024) return `${bytes} B`;
  let prefix = -1;
  // What would round to 1024.0 is shown in the next unit.
  while (scaled >= (prefix < 0 ? 1024 : 1023.95) && prefix + 1 < PREFIXES.length) {
    scaled /= 1024;
    prefix++;
  }
  return `${bytes < 0 ? "-" : ""}${withTenths(scaled)} ${PREFIXES[prefix]}`;
}

export function formatFigure(figure: number, unit: Unit): string {
  return unit === "bytes" ? formatBytes(figure) : formatCount(figure);
}

/** "1,234,567 bytes": to the last byte. */
export function formatExact(figure: number, unit: Unit): string {
  return counted(figure, unit === "bytes" ? "byte" : "block");
}

export function formatGrowth(growth: number, unit: Unit): string {
  return growth > 0 ? `+${formatFigure(growth, unit)}` : formatFigure(growth, unit);
}

export function formatPercent(part: number, whole: number): string {
  return whole === 0 ? "-" : `${withTenths((100 * part) / whole).replace(/^-0\.0$/, "0.0")}%`;
}

export function formatDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return `${ms} ms`;
  if (seconds < 60) return `${(ms / 1000).toFixed(2)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
}

export function basename(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

// Control characters, and those that reorder the text around them, get a visible stand-in.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

export function printable(text: string): string {
  return text.replace(UNPRINTABLE, "\ufffd");
}
