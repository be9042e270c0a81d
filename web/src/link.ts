// SPDX-License-Identifier: BSD-2-Clause
// What the reader has chosen, kept in the page's address behind the "#".

/** One choice: how it is written, and how it is made again. "" is what the page begins with. */
export interface Selection {
  key: string;
  get(): string[];
  set(values: string[]): void;
}

export class Link {
  private isReady = false;

  constructor(private readonly selections: Selection[]) {}

  /** Makes the choices that the address names, in the order of the selections. */
  restore(): void {
    const words = new URLSearchParams(location.hash.slice(1));
    for (const { key, set } of this.selections) {
      const values = words.getAll(key);
      if (values.length) set(values);
    }
    this.isReady = true;
  }

  /** Writes the choices into the address; as a place that "back" does not stop at. */
  update(): void {
    if (!this.isReady) return;
    const words = new URLSearchParams();
    for (const { key, get } of this.selections)
      for (const value of get()) if (value) words.append(key, value);
    history.replaceState(null, "", `#${words}`);
  }
}
