// SPDX-License-Identifier: BSD-2-Clause
// The buttons of the picture and its search box, at the right of its top or of the window's.

import { counted, formatPercent } from "./format";
import { PictureTree } from "./picture_data";
import { element, svg } from "./picture_svg";
import { ROOT } from "./tree";

const XHTML = "http://www.w3.org/1999/xhtml";
const BOX_LEFT = -420;
const BOX_WIDTH = 240;
const RESULT_RIGHT = BOX_LEFT - 12;

interface Actions {
  reset(): void;
  /** By function: whether its name is searched for; null: no search. */
  search(found: boolean[] | null): void;
  focusMatch(): void;
}

function expressionOf(text: string): RegExp | null {
  try {
    return new RegExp(text, "i");
  } catch {
    return null;
  }
}

function setVisible(part: Element, isVisible: boolean): void {
  part.setAttribute("visibility", isVisible ? "visible" : "hidden");
}

export class Controls {
  private readonly group = element("g", { id: "controls" }, svg);
  /** Keeps the result legible above the title and the frames. */
  private readonly panel = element("rect", { y: -4, height: 32, rx: 4, class: "panel", "fill-opacity": 0.92 }, this.group);
  private readonly result = element("text", {
    x: RESULT_RIGHT, y: 16, class: "plain", "text-anchor": "end", role: "status", "aria-live": "polite",
  }, this.group);
  private readonly box = element("foreignObject", { x: BOX_LEFT, y: 0, width: BOX_WIDTH, height: 24 }, this.group);
  private readonly input = document.createElementNS(XHTML, "input") as HTMLInputElement;
  private readonly reset: SVGElement;

  constructor(
    private readonly tree: PictureTree, private readonly cell: number, private readonly actions: Actions,
  ) {
    this.reset = this.addButton("reset", "Reset zoom", -168, 90, () => actions.reset());
    this.addButton("find", "Search", -70, 70, () => this.openSearch());
    for (const part of [this.panel, this.box, this.reset]) setVisible(part, false);
    this.input.id = "search";
    this.input.type = "text";
    this.input.placeholder = "regular expression";
    this.input.setAttribute("aria-label", "Search names by regular expression");
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") this.closeSearch();
      else if (event.key === "Enter") actions.focusMatch();
    });
    this.box.append(this.input);
  }

  private addButton(id: string, label: string, left: number, width: number, act: () => void): SVGElement {
    const button = element("g", { class: "button", tabindex: 0, role: "button", id, transform: `translate(${left} 0)` },
      this.group);
    element("rect", { width, height: 24, rx: 4 }, button);
    element("text", { x: width / 2, y: 16 }, button, label);
    button.addEventListener("click", act);
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      act();
    });
    return button;
  }

  /** Puts them left of `right`, in view. */
  place(right: number): void {
    const scrolled = Math.max(0, -svg.getBoundingClientRect().top);
    this.group.setAttribute("transform", `translate(${right} ${scrolled + 12})`);
  }

  showReset(isShown: boolean): void {
    setVisible(this.reset, isShown);
  }

  openSearch(): void {
    setVisible(this.box, true);
    setVisible(this.panel, true);
    this.search();
    this.input.focus();
    this.input.select();
  }

  closeSearch(): void {
    setVisible(this.box, false);
    setVisible(this.panel, false);
    this.input.value = "";
    this.search();
    this.input.blur();
  }

  private search(): void {
    const expression = expressionOf(this.input.value);
    const found = this.input.value && expression
      ? this.tree.data.functions.map(([name]) => expression.test(name)) : null;
    this.input.classList.toggle("bad", !expression);
    this.actions.search(found);
    this.result.textContent = found ? this.describe(found) : expression ? "" : "not a regular expression";
    const width = this.result.textContent.length * this.cell + 12 - RESULT_RIGHT;
    this.panel.setAttribute("x", String(-width));
    this.panel.setAttribute("width", String(width + 4));
  }

  /** Frames with matching names, and their value; what lies below a match is not counted twice. */
  private describe(found: boolean[]): string {
    const { tree } = this;
    let count = 0;
    let value = 0;
    let covered = 0;
    for (let node = 1; node < tree.count; node++) {
      if (!found[tree.name(node) - 1]) continue;
      count++;
      if (node < covered) continue;
      value += tree.sum(node);
      covered = tree.end(node);
    }
    return `${formatPercent(value, tree.sum(ROOT))} matched: ${tree.short(value)} in ${counted(count, "frame")}`;
  }
}
