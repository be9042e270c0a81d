// SPDX-License-Identifier: BSD-2-Clause
// The bar of filters: what was chosen, each with a button that takes it back, and a box for more.

import { Choice } from "./choice";
import { Report } from "./data";
import { announce, byId, make } from "./dom";
import { Filter, Role, ROLES, Rule } from "./filter";
import { counted } from "./format";

export const ROLE_WORDS: Record<Role, { chip: string; action: string; hint: string }> = {
  focus: { chip: "only", action: "Only stacks with", hint: "As --focus" },
  ignore: { chip: "without", action: "No stacks with", hint: "As --ignore" },
  hide: { chip: "hidden", action: "Hide frames of", hint: "As --hide: what they hold is their caller's" },
};

export function setUpFilterBar(filter: Filter): void {
  const chips = byId("filters");
  const role = byId<HTMLSelectElement>("filter-role");
  const text = byId<HTMLInputElement>("filter-text");
  role.append(...ROLES.map((key) =>
    make("option", { value: key, title: ROLE_WORDS[key].hint }, ROLE_WORDS[key].action)));
  byId("filter-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!text.value) return;
    filter.add({ role: role.value as Role, text: text.value, isName: false });
    text.value = "";
  });
  const chip = (rule: Rule) => make("li", { class: "chip" }, `${ROLE_WORDS[rule.role].chip}: ${rule.text}`,
    make("button", { type: "button", "aria-label": `Remove the filter on ${rule.text}`,
      click: () => filter.remove(rule) }, "×"));
  filter.listen(() => {
    const hadFocus = chips.contains(document.activeElement);
    chips.replaceChildren(...filter.rules.map(chip));
    if (hadFocus) text.focus();
    announce(filter.rules.length ? `${counted(filter.rules.length, "filter")} in use` : "All stacks are shown");
  });
}

/** The choice of one thread; `onChoose` is called before its figures are shown. */
export class Threads {
  private readonly select = byId<HTMLSelectElement>("thread");

  constructor(report: Report, choice: Choice, onChoose: () => void) {
    const { threads } = report;
    if (!threads.length) return;
    const pids = new Set(threads.map((thread) => thread.pid));
    const nameOf = ({ pid, tid, name }: Report["threads"][number]) =>
      `${name || "thread"} ${tid}${pids.size > 1 ? ` of process ${pid}` : ""}`;
    this.select.append(make("option", { value: "" }, "All threads"),
      ...threads.map((thread, i) => make("option", { value: String(i) }, nameOf(thread))));
    const { after, before } = report;
    this.select.addEventListener("change", () => {
      onChoose();
      if (this.value) choice.setFigures(threads[Number(this.value)].figures(), null, false);
      else choice.setFigures(after, before, false);
    });
    byId("threads").hidden = false;
  }

  /** The place of the thread in report.threads, or "". */
  get value(): string {
    return this.select.value;
  }

  choose(value: string): void {
    this.select.value = value;
    this.select.dispatchEvent(new Event("change"));
  }

  /** Shows that it is all of them again, after the timeline has chosen other figures. */
  reset(): void {
    this.select.value = "";
  }
}
