// SPDX-License-Identifier: BSD-2-Clause
// What stands beside the pointer over a frame of the picture.

import { formatBytes, formatCount, formatPercent, printable } from "./format";
import { PictureTree } from "./picture_data";
import { element, svg } from "./picture_svg";
import { ROOT } from "./tree";

const LINE = 16;
const CELLS = 90;
const NAME_LINES = 4;

interface Line {
  text: string;
  class?: string;
}

function wrap(text: string): string[] {
  const lines = [];
  for (let at = 0; at < text.length && lines.length < NAME_LINES; at += CELLS) lines.push(text.slice(at, at + CELLS));
  if (text.length > CELLS * NAME_LINES) lines[NAME_LINES - 1] = `${lines[NAME_LINES - 1].slice(0, -1)}…`;
  return lines;
}

export class Tip {
  private readonly group = element("g", { id: "tip", visibility: "hidden" }, svg);

  constructor(private readonly tree: PictureTree, private readonly cell: number) {}

  private growthLine(node: number): Line {
    const { tree } = this;
    const before = tree.base(node);
    const grown = tree.sum(node) - before;
    const share = before > 0 ? `, ${grown > 0 ? "+" : ""}${formatPercent(grown, before)}` : "";
    return {
      text: `before ${tree.long(before)}: ${tree.growth(node)}${share}`,
      class: grown > 0 ? "grew" : grown < 0 ? "shrank" : "",
    };
  }

  /** Where the function is defined, and its module. */
  private places(node: number): string[] {
    const [, module, file, line] = this.tree.functionOf(node) ?? ["", -1, "", 0];
    const definition = file ? `defined at ${file}${line ? `:${line}` : ""}` : "";
    return [definition, this.tree.data.modules[module] ?? ""].filter(Boolean).map(printable);
  }

  private lines(node: number, zoomed: number): Line[] {
    const { tree } = this;
    const { data } = tree;
    const value = tree.sum(node);
    const lines: Line[] = wrap(printable(tree.nameOf(node))).map((text) => ({ text, class: "name" }));
    const isWithin = zoomed !== ROOT && node > zoomed && node < tree.end(zoomed);
    const ofZoomed = isWithin ? `, ${formatPercent(value, tree.sum(zoomed))} of the zoomed frame` : "";
    lines.push({ text: `${tree.long(value)}, ${formatPercent(value, tree.sum(ROOT))} of all${ofZoomed}` });
    if (data.diff) lines.push(this.growthLine(node));
    if (data.other === "bytes") lines.push({ text: formatBytes(tree.other(node)) });
    else if (data.other) lines.push({ text: `${formatCount(tree.other(node))} ${data.other}` });
    if (!data.reversed && tree.self(node)) lines.push({ text: `itself ${tree.long(tree.self(node))}` });
    for (const place of this.places(node))
      lines.push({ text: place.length > CELLS ? `…${place.slice(1 - CELLS)}` : place });
    return lines;
  }

  /** Shows it near (x, y), on the side where there is room. */
  show(node: number, zoomed: number, x: number, y: number, pictureWidth: number): void {
    const lines = this.lines(node, zoomed);
    const width = Math.max(...lines.map(({ text }) => text.length)) * this.cell * 1.02 + 20;
    const height = lines.length * LINE + 12;
    const view = svg.getBoundingClientRect();
    const bottom = Math.min(window.innerHeight - view.top, view.height);
    const left = Math.max(2, Math.min(x + 14, pictureWidth - width - 2));
    const top = y + 18 + height < bottom ? y + 18 : Math.max(2 - Math.min(0, view.top), y - height - 8);
    this.group.replaceChildren();
    element("rect", { x: left, y: top, width, height, rx: 5 }, this.group);
    lines.forEach((line, i) =>
      element("text", { x: left + 10, y: top + 19 + i * LINE, class: line.class ?? "" }, this.group, line.text));
    this.group.setAttribute("visibility", "visible");
  }

  hide(): void {
    this.group.setAttribute("visibility", "hidden");
  }
}
