// SPDX-License-Identifier: BSD-2-Clause
// Reads the columns of numbers that stand after the summary; see src/view/page/report.h.

const MORE = 0x80;

/** Numbers up to 2^53 are exact, which bytes and blocks of any process are. */
export class ColumnReader {
  private at: number;

  constructor(private readonly bytes: Uint8Array, from: number) {
    this.at = from;
  }

  private next(): number {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < MORE) return byte;
    let number = byte & 0x7f;
    let scale = MORE;
    do {
      byte = bytes[this.at++];
      number += (byte & 0x7f) * scale;
      scale *= MORE;
    } while (byte >= MORE);
    return number;
  }

  /** Numbers into column[from], column[from + 1], ... to its end. */
  ids(count: number, from: number): Uint32Array {
    const column = new Uint32Array(count);
    for (let i = from; i < count; i++) column[i] = this.next();
    return column;
  }

  /** Numbers that may not fit 32 bits. */
  numbers(count: number): Float64Array {
    const column = new Float64Array(count);
    for (let i = 0; i < count; i++) column[i] = this.next();
    return column;
  }

  /** Ascending numbers, stored as differences. */
  ascending(count: number): Uint32Array {
    const column = this.ids(count, 0);
    for (let i = 1; i < count; i++) column[i] += column[i - 1];
    return column;
  }

  signed(count: number): Float64Array {
    const column = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const number = this.next();
      column[i] = number % 2 ? -(number + 1) / 2 : number / 2;
    }
    return column;
  }
}
