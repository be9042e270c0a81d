// SPDX-License-Identifier: BSD-2-Clause
// Draws the visible rows of a flame graph.

import { Box, Layout, OMITTED } from "./layout";

export const ROW_HEIGHT = 20;
const GAP = 1;
const PADDING = 5;
const NARROWEST_TEXT = 28;
const FONT = "12px system-ui, sans-serif";

export interface Style {
  text: string;
  faintText: string;
  omitted: string;
  outline: string;
  match: string;
  matchText: string;
  background: string;
}

/** What to draw; boxes are asked for one by one, so only visible ones cost anything. */
export interface Picture {
  layout: Layout;
  flamesUp: boolean;
  scrollTop: number;
  selected: number;
  hovered: number;
  searching: boolean;
  style: Style;
  label(node: number): string;
  color(node: number): string;
  isMatch(node: number): boolean;
}

export function heightOf(layout: Layout): number {
  return layout.rows.length * ROW_HEIGHT;
}

/** The distance of a row from the top of the graph. */
export function topOfRow(layout: Layout, row: number, flamesUp: boolean): number {
  return (flamesUp ? layout.rows.length - 1 - row : row) * ROW_HEIGHT;
}

/** The row at a distance from the top of the graph. */
export function rowAt(layout: Layout, y: number, flamesUp: boolean): number {
  const fromTop = Math.floor(y / ROW_HEIGHT);
  return flamesUp ? layout.rows.length - 1 - fromTop : fromTop;
}

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private readonly widths = new Map<string, number>();

  constructor(private readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d") as CanvasRenderingContext2D;
  }

  resize(width: number, height: number): void {
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
  }

  paint(picture: Picture): void {
    const { layout, flamesUp, scrollTop, style } = picture;
    const height = this.canvas.clientHeight;
    this.context.fillStyle = style.background;
    this.context.fillRect(0, 0, this.canvas.clientWidth, height);
    layout.rows.forEach((row, index) => {
      const y = topOfRow(layout, index, flamesUp) - scrollTop;
      if (y > -ROW_HEIGHT && y < height) for (const box of row) this.paintBox(picture, box, index, y);
    });
  }

  private paintBox(picture: Picture, box: Box, row: number, y: number): void {
    const { context } = this;
    const { style, searching } = picture;
    const width = Math.max(box.width - GAP, 0.5);
    if (box.node === OMITTED) {
      context.fillStyle = style.omitted;
      context.fillRect(box.x, y, width, ROW_HEIGHT - GAP);
      return;
    }
    const isMatch = searching && picture.isMatch(box.node);
    context.globalAlpha = (searching && !isMatch) ? 0.4 : row < picture.layout.zoomRow ? 0.6 : 1;
    context.fillStyle = isMatch ? style.match : picture.color(box.node);
    context.fillRect(box.x, y, width, ROW_HEIGHT - GAP);
    context.globalAlpha = 1;
    if (box.node === picture.selected || box.node === picture.hovered) {
      context.strokeStyle = style.outline;
      context.lineWidth = box.node === picture.selected ? 2 : 1;
      context.strokeRect(box.x + 1, y + 1, Math.max(width - 2, 1), ROW_HEIGHT - GAP - 2);
    }
    if (width < NARROWEST_TEXT) return;
    context.fillStyle = isMatch ? style.matchText : searching ? style.faintText : style.text;
    this.paintText(picture.label(box.node), box.x + PADDING, y + ROW_HEIGHT / 2, width - 2 * PADDING);
  }

  private widthOf(text: string): number {
    let width = this.widths.get(text);
    if (width === undefined) this.widths.set(text, (width = this.context.measureText(text).width));
    return width;
  }

  private paintText(text: string, x: number, y: number, room: number): void {
    const width = this.widthOf(text);
    let shown = text;
    if (width > room) {
      const fitting = Math.floor((text.length * room) / width) - 2;
      if (fitting < 2) return;
      shown = `${text.slice(0, fitting)}…`;
    }
    this.context.fillText(shown, x, y);
  }
}
