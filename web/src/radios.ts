// SPDX-License-Identifier: BSD-2-Clause
// A row of buttons of which one is chosen: native radio buttons, so that the keyboard just works.

import { make } from "./dom";

export interface RadioOption<Key extends string> {
  key: Key;
  label: (Node | string)[];
}

export interface Radios<Key extends string> {
  element: HTMLElement;
  /** Shows which is chosen, and which can be. */
  show(chosen: Key, isPossible?: (key: Key) => boolean): void;
}

export function makeRadios<Key extends string>(
  group: string, legend: string, style: string, options: RadioOption<Key>[], choose: (key: Key) => void,
): Radios<Key> {
  const inputs = new Map<Key, HTMLInputElement>();
  const element = make("fieldset", { class: style }, make("legend", { class: "unseen" }, legend));
  for (const { key, label } of options) {
    const input = make("input", { type: "radio", name: group, value: key, change: () => choose(key) });
    inputs.set(key, input);
    element.append(make("label", {}, input, make("span", { class: "face" }, ...label)));
  }
  const show = (chosen: Key, isPossible: (key: Key) => boolean = () => true) =>
    inputs.forEach((input, key) => {
      input.checked = key === chosen;
      input.disabled = !isPossible(key);
    });
  return { element, show };
}
