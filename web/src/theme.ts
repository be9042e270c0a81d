// SPDX-License-Identifier: BSD-2-Clause
// Dark and light: as the system says, or as the switch says.

const THEMES = ["auto", "light", "dark"] as const;
type Theme = typeof THEMES[number];

const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
let theme: Theme = "auto";
let colors = new Map<string, string>();

export function isDark(): boolean {
  return theme === "auto" ? systemIsDark.matches : theme === "dark";
}

/** The value of a custom property of style.css; asking the style itself is slow. */
export function themeColor(property: string): string {
  let color = colors.get(property);
  if (color === undefined) {
    color = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
    colors.set(property, color);
  }
  return color;
}

function apply(button: HTMLElement, onChange: () => void): void {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  button.textContent = `Theme: ${theme}`;
  colors = new Map();
  onChange();
}

/** Lets `button` go through the themes; `onChange` is called whenever colours have changed. */
export function setUpTheme(button: HTMLElement, onChange: () => void): void {
  systemIsDark.addEventListener("change", () => apply(button, onChange));
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    apply(button, onChange);
  });
  apply(button, () => undefined);
}
