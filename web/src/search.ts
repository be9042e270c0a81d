// SPDX-License-Identifier: BSD-2-Clause
// The search box of the flame graph.

import { Choice } from "./choice";
import { Report } from "./data";
import { announce, byId } from "./dom";
import { finder } from "./filter";
import { counted, formatExact, formatFigure, formatPercent, printable } from "./format";
import { FlameGraph } from "./flame";
import { ROOT } from "./tree";
import { Trees } from "./trees";

export class Search {
  private readonly box = byId<HTMLInputElement>("search");
  private readonly result = byId("search-result");
  /** A whole name, where the search came from a table; null: what the box says. */
  private exactName: string | null = null;

  constructor(
    private readonly report: Report, private readonly choice: Choice,
    private readonly trees: Trees, private readonly flame: FlameGraph,
  ) {
    this.box.addEventListener("input", () => {
      this.exactName = null;
      this.apply();
    });
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.clear();
    });
  }

  focus(): void {
    this.box.focus();
    this.box.select();
  }

  get text(): string {
    return this.box.value;
  }

  /** Searches for what the box would say. */
  setText(text: string): void {
    this.box.value = text;
    this.exactName = null;
    this.apply();
  }

  /** Searches for that name alone. */
  find(name: string): void {
    this.box.value = printable(name);
    this.exactName = name;
    this.apply();
  }

  private clear(): void {
    this.box.value = "";
    this.exactName = null;
    this.apply();
  }

  /** What the box says is a regular expression, as in the pictures of `heapline flame`, or else plain text. Unlike a filter
   *  it takes no notice of letters' case. */
  private matcher(): (name: string) => boolean {
    return this.exactName !== null ? (name) => name === this.exactName : finder(this.box.value, true);
  }

  private matches(): Uint8Array {
    const isFound = this.matcher();
    const { texts, functions } = this.report;
    const isMatch = new Uint8Array(texts.length);
    for (let i = 1; i < functions.count; i++) {
      if (isFound(texts[functions.name[i]])) isMatch[functions.name[i]] = 1;
    }
    return isMatch;
  }

  /** Searches again, in other figures or for other words. */
  apply(): void {
    if (!this.box.value) {
      this.flame.setMatches(null);
      this.result.textContent = "";
      return;
    }
    const isMatch = this.matches();
    this.flame.setMatches(isMatch);
    this.say(isMatch.reduce((count, one) => count + one, 0), this.trees.callees.sumOfMatches(isMatch));
  }

  private say(names: number, sum: number): void {
    const { unit } = this.choice;
    const share = formatPercent(sum, this.trees.callees.sum(ROOT));
    const what = counted(names, "function");
    const text = names ? `${what} in stacks of ${formatFigure(sum, unit)}, ${share}` : "No function has that in its name";
    this.result.textContent = text;
    this.result.title = formatExact(sum, unit);
    this.result.dataset.figure = String(sum);
    announce(text);
  }
}
