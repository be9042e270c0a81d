// SPDX-License-Identifier: BSD-2-Clause
// Round numbers for the axes of the timeline, and times as people read them.

import { formatCount } from "./format";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const TIME_STEPS = [
  100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE,
  30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY,
];

/** The smallest step of which no more than `most` fit into `length` milliseconds. */
export function timeStep(length: number, most: number): number {
  return TIME_STEPS.find((step) => length / step <= most) ?? Math.ceil(length / most / DAY) * DAY;
}

/** A power of two, so that KiB and MiB are round. */
export function byteStep(bytes: number, most: number): number {
  let step = 1;
  while (bytes / step > most) step *= 2;
  return step;
}

/** "3.4 s", "12 min 30 s", "3 h 20 min": as exact as one reads it; formatMs() is exact. */
export function formatTime(ms: number): string {
  if (ms < MINUTE) return `${Math.round(ms / 10) / 100} s`;
  const isLong = ms >= HOUR;
  const [size, part] = isLong ? [HOUR, MINUTE] : [MINUTE, SECOND];
  const parts = Math.round(ms / part);
  const rest = parts % (size / part);
  return `${formatCount(Math.floor(parts / (size / part)))} ${isLong ? "h" : "min"}` +
    (rest ? ` ${rest} ${isLong ? "min" : "s"}` : "");
}

/** To the millisecond: "1,659 ms". */
export function formatMs(ms: number): string {
  return `${formatCount(ms)} ms`;
}
