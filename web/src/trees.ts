// SPDX-License-Identifier: BSD-2-Clause
// Both trees of the chosen figure, made when first asked for.

import { CalleeTree } from "./callees";
import { CallerTree } from "./callers";
import { Choice } from "./choice";
import { Report } from "./data";
import { Tree } from "./tree";

export class Trees {
  readonly callees: CalleeTree;
  private reversed: CallerTree | null = null;

  constructor(report: Report, choice: Choice) {
    this.callees = new CalleeTree(report);
    this.callees.show(choice);
    choice.listen(() => {
      this.callees.show(choice);
      this.reversed = null;
    });
  }

  get(isReversed: boolean): Tree {
    if (!isReversed) return this.callees;
    return (this.reversed ??= new CallerTree(this.callees));
  }
}
