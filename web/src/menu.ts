// SPDX-License-Identifier: BSD-2-Clause
// The menu of a frame: what can be done with a function wherever its name stands.

import { announce, byId, make } from "./dom";

export interface Entry {
  label: string;
  act(): void;
}

let returnTo: HTMLElement | null = null;

export function closeMenu(): void {
  const menu = byId("menu");
  if (menu.hidden) return;
  menu.hidden = true;
  returnTo?.focus({ preventScroll: true });
}

/** Copies `text`, where the page may not use the clipboard itself by a selection. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = make("textarea", { class: "unseen" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  announce(`Copied ${what}`);
}

function press(event: KeyboardEvent): void {
  const buttons = [...byId("menu").querySelectorAll("button")];
  const place = buttons.indexOf(document.activeElement as HTMLButtonElement);
  const last = buttons.length - 1;
  const places: Record<string, number> = {
    ArrowDown: place === last ? 0 : place + 1, ArrowUp: place <= 0 ? last : place - 1, Home: 0, End: last,
  };
  if (event.key === "Escape" || event.key === "Tab") closeMenu();
  else if (event.key in places) buttons[places[event.key]].focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Opens the menu at a place of the window; the keyboard's focus goes back to where it was. */
export function openMenu(title: string, entries: Entry[], x: number, y: number): void {
  const menu = byId("menu");
  if (menu.hidden) returnTo = document.activeElement as HTMLElement | null;
  menu.setAttribute("aria-label", title);
  menu.replaceChildren(...entries.map(({ label, act }) =>
    make("button", { type: "button", role: "menuitem", tabindex: -1, click: () => { closeMenu(); act(); } }, label)));
  menu.hidden = false;
  menu.style.left = `${Math.max(4, Math.min(x, window.innerWidth - menu.offsetWidth - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, window.innerHeight - menu.offsetHeight - 4))}px`;
  menu.querySelector("button")?.focus();
}

export function setUpMenu(): void {
  byId("menu").addEventListener("keydown", press);
  document.addEventListener("pointerdown", (event) => {
    if (!byId("menu").contains(event.target as Node)) byId("menu").hidden = true;
  });
  window.addEventListener("blur", () => (byId("menu").hidden = true));
}
