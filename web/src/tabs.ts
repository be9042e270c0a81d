// SPDX-License-Identifier: BSD-2-Clause
// Tabs with the keyboard of the ARIA practices; a panel is built when it is first seen.

import { byId, make } from "./dom";

export interface Tab {
  /** Of the panel in page.html; its tab is ID-tab. */
  id: string;
  title: string;
  /** Called before the panel is seen, every time. */
  show: () => void;
}

export class Tabs {
  private readonly buttons: HTMLButtonElement[];
  private current = -1;
  /** Called after a tab has been opened. */
  onOpen: () => void = () => undefined;

  constructor(private readonly tabs: Tab[]) {
    const list = byId("tabs");
    this.buttons = tabs.map((tab, i) =>
      make("button", {
        type: "button", role: "tab", id: `${tab.id}-tab`, "aria-controls": tab.id, tabindex: -1,
        click: () => this.open(i),
      }, tab.title));
    list.append(...this.buttons);
    list.addEventListener("keydown", (event) => this.press(event));
  }

  private press(event: KeyboardEvent): void {
    const last = this.tabs.length - 1;
    const places: Record<string, number> = {
      ArrowRight: this.current === last ? 0 : this.current + 1,
      ArrowLeft: this.current === 0 ? last : this.current - 1,
      Home: 0,
      End: last,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    this.open(places[event.key]);
    this.buttons[this.current].focus();
  }

  open(place: number): void {
    this.current = place;
    this.tabs.forEach((tab, i) => {
      byId(tab.id).hidden = i !== place;
      this.buttons[i].setAttribute("aria-selected", String(i === place));
      this.buttons[i].tabIndex = i === place ? 0 : -1;
    });
    this.tabs[place].show();
    this.onOpen();
  }

  get openedId(): string {
    return this.tabs[this.current].id;
  }

  openId(id: string): void {
    const place = this.tabs.findIndex((tab) => tab.id === id);
    if (place >= 0) this.open(place);
  }

  /** Figures have changed. */
  refresh(): void {
    this.tabs[this.current].show();
  }
}
