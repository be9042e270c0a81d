// SPDX-License-Identifier: BSD-2-Clause
// The picture around the script: makes its elements, and adds the style that only the script needs.

const SVG = "http://www.w3.org/2000/svg";

export const svg = (document.currentScript as SVGScriptElement).ownerSVGElement as SVGSVGElement;

export function element(
  name: string, attributes: Record<string, string | number>, parent?: Element | null, text?: string,
): SVGElement {
  const made = document.createElementNS(SVG, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  parent?.appendChild(made);
  return made;
}

const STYLE = `
#frames rect { cursor: pointer }
#frames text { pointer-events: none }
#frames .above { opacity: .55 }
#frames .found { fill: #e56bd8 }
#frames.searched rect:not(.found) { fill-opacity: .5 }
#frames :focus { outline: none }
#frames :hover > rect, #frames > rect:hover { stroke: #16191d; stroke-width: 1 }
#frames :focus > rect, #frames > rect:focus { stroke: #16191d; stroke-width: 2 }
.button { cursor: pointer }
.button rect { fill: #eef1f4; stroke: #c3cad2 }
.button:hover rect, .button:focus rect { fill: #dfe5eb; stroke: #16191d }
.button:focus { outline: none }
.button text { font: 12px system-ui, 'DejaVu Sans', sans-serif; text-anchor: middle }
#tip { pointer-events: none }
#tip rect { fill: #16191d; fill-opacity: .97 }
#tip text { fill: #e8ecf1 }
#tip .name { font-weight: 600; fill: #fff }
#tip .grew { fill: #ff9d92 }
#tip .shrank { fill: #92c5ff }
#search { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; width: 100%; height: 100%;
  box-sizing: border-box; border: 1px solid #8a949f; border-radius: 4px; padding: 0 6px; background: #fff; color: #16191d }
#search.bad { border-color: #b3261e; background: #fdeceb }
.panel { fill: #fff }
@media (prefers-color-scheme: dark) {
  .panel { fill: #1c1d20 }
  #frames .found { fill: #a0449a }
  #frames :hover > rect, #frames > rect:hover { stroke: #f0f0ed }
  #frames :focus > rect, #frames > rect:focus { stroke: #f0f0ed }
  .button rect { fill: #2a2c30; stroke: #4a4d52 }
  .button:hover rect, .button:focus rect { fill: #34363a; stroke: #f0f0ed }
  #tip rect { fill: #3a3d42 }
  #search { background: #141517; color: #e6e6e3; border-color: #4a4d52 }
  #search.bad { border-color: #ff8a7a; background: #3a1f1c }
}`;

export function addStyle(): void {
  svg.prepend(element("style", {}, null, STYLE));
}
