// SPDX-License-Identifier: BSD-2-Clause
// Makes elements. Texts only ever become text nodes and attributes, never markup.

import { printable } from "./format";

type Child = Node | string | null;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void)>;

function setAttribute(element: Element, name: string, value: Attributes[string]): void {
  if (typeof value === "function") element.addEventListener(name, value);
  else if (typeof value === "boolean") element.toggleAttribute(name, value);
  else element.setAttribute(name, printable(String(value)));
}

export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag, attributes: Attributes = {}, ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  for (const child of children)
    if (child !== null) element.append(typeof child === "string" ? printable(child) : child);
  return element;
}

/** The element of page.html with that id. */
export function byId<Type extends HTMLElement = HTMLElement>(id: string): Type {
  return document.getElementById(id) as Type;
}

/** Says `text` to screen readers. */
export function announce(text: string): void {
  byId("live").textContent = printable(text);
}

export function nextPaint(): Promise<void> {
  return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}
