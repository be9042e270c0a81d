// SPDX-License-Identifier: BSD-2-Clause
// Both trees of the chosen figure, made when first asked for.

import { CalleeTree } from "./callees";
import { CallerTree } from "./callers";
import { Choice } from "./choice";
import { Report } from "./data";
import { Tree } from "./tree";

export class Trees {
  callees: CalleeTree;
  private reversed: CallerTree | null = null;

  constructor(report: Report, choice: Choice) {
    let { nodes } = report;
    this.callees = new CalleeTree(report);
    this.callees.show(choice);
    choice.listen(() => {
      if (nodes !== report.nodes) this.callees = new CalleeTree(report);
      nodes = report.nodes;
      this.callees.show(choice);
      this.reversed = null;
    });
  }

  get(isReversed: boolean): Tree {
    if (!isReversed) return this.callees;
    return (this.reversed ??= new CallerTree(this.callees));
  }
}
