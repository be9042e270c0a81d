// SPDX-License-Identifier: BSD-2-Clause
// One function between its callers and its callees.

import { keysByFunction, sumByKey } from "./aggregate";
import { CalleesOf, outermostCalls } from "./callees_of";
import { CallerTree } from "./callers";
import { Choice } from "./choice";
import { Report } from "./data";
import { announce, byId, make } from "./dom";
import { formatFigure, formatPercent } from "./format";
import { ROOT, Tree } from "./tree";
import { TreeView } from "./tree_view";
import { Trees } from "./trees";

const NAMES_OFFERED = 1000;

export class Sandwich {
  /** Id of the chosen function's name; 0 before there is one. */
  private name = 0;
  private readonly box = byId<HTMLInputElement>("sandwich-name");
  private readonly callers: TreeView;
  private readonly callees: TreeView;

  constructor(
    private readonly report: Report, private readonly choice: Choice, private readonly trees: Trees,
    onMenu: (tree: Tree, node: number, x: number, y: number) => void, private readonly onChoose: () => void,
  ) {
    this.callers = new TreeView(report, choice, "Callers", onMenu);
    this.callees = new TreeView(report, choice, "Callees", onMenu);
    byId("callers").append(this.callers.element);
    byId("callees").append(this.callees.element);
    this.box.addEventListener("change", () => this.choose(this.report.texts.indexOf(this.box.value)));
  }

  get functionName(): string {
    return this.report.texts[this.name];
  }

  /** Shows the function of that name when the panel is next seen, or now. */
  choose(name: number): void {
    if (name > 0) this.name = name;
    else announce("There is no function of that name");
    this.show();
    this.onChoose();
  }

  /** Names by what they hold with all that they call. */
  private offerNames(): void {
    const { report, choice } = this;
    const { functions } = report;
    const { flat, cum } = sumByKey(report, keysByFunction(report), choice.column(report.after));
    const ids = [...cum.keys()].slice(1).filter((id) => cum[id] > 0).sort((a, b) => cum[b] - cum[a]);
    byId("function-names").replaceChildren(...ids.slice(0, NAMES_OFFERED)
      .map((id) => make("option", { value: report.texts[functions.name[id]] })));
    if (!this.name && ids.length)
      this.name = functions.name[ids.reduce((most, id) => (flat[id] > flat[most] ? id : most))];
  }

  show(): void {
    this.offerNames();
    if (!this.name) return;
    const { callees } = this.trees;
    const calls = outermostCalls(callees, this.name);
    const below = new CalleesOf(callees, calls);
    this.box.value = this.functionName;
    byId("sandwich-sum").textContent = calls.length
      ? `${formatFigure(below.sum(ROOT), this.choice.unit)}, ${formatPercent(below.sum(ROOT), callees.sum(ROOT))} of the total, ` +
        `of which ${formatFigure(below.self(ROOT), this.choice.unit)} its own`
      : "Nothing that is shown passes through it";
    this.callers.show(new CallerTree(callees, calls));
    this.callees.show(below);
  }
}
