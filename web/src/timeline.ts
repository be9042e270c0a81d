// SPDX-License-Identifier: BSD-2-Clause
// The timeline: a range of it is chosen by mouse, touch or keyboard, and all views show what was in
// use at the range's maximum, or by how much it grew.

import { Choice } from "./choice";
import { Figures, Report } from "./data";
import { announce, byId } from "./dom";
import { basename, formatBytes, formatGrowth, printable } from "./format";
import { makeRadios, Radios } from "./radios";
import { formatMs, formatTime } from "./timeline_axis";
import { Timeline } from "./timeline_data";
import { TimelinePainter } from "./timeline_paint";
import { setUpTimelineTable } from "./timeline_table";

const HEIGHT = 168;
const PAGE_STEP = 10;
/** Keys that follow one another faster than that are shown at once. */
const PATIENCE_MS = 120;

const ASPECTS = ["maximum", "growth"] as const;
type Aspect = typeof ASPECTS[number];
const ASPECT_WORDS: Record<Aspect, string> = {
  maximum: "At its maximum",
  growth: "Growth from its beginning to its end",
};

/** Moments; `anchor` is where choosing began, `head` where it is now. */
interface Range {
  anchor: number;
  head: number;
}

export class TimelineView {
  private range: Range | null = null;
  private aspect: Aspect = "maximum";
  private isDragging = false;
  private rangeBefore: Range | null = null;
  private hoverMs: number | null = null;
  private timer = 0;
  private readonly whole: { after: Figures; before: Figures | null };
  private readonly section = byId("timeline");
  private readonly canvas = byId<HTMLCanvasElement>("timeline-canvas");
  private readonly clearButton = byId<HTMLButtonElement>("timeline-clear");
  private readonly painter: TimelinePainter;
  private readonly aspects: Radios<Aspect>;

  /** Called before figures of a range, or of the whole again, are shown. */
  onChoose: () => void = () => undefined;

  constructor(private readonly report: Report, private readonly timeline: Timeline, private readonly choice: Choice) {
    this.whole = { after: report.after, before: report.before };
    this.painter = new TimelinePainter(this.canvas, timeline);
    this.aspects = makeRadios("aspect", "What to show of the range", "segments",
      ASPECTS.map((aspect) => ({ key: aspect, label: [ASPECT_WORDS[aspect]] })), (aspect) => this.setAspect(aspect));
    byId("timeline-aspects").append(this.aspects.element);
    this.showProcess();
    this.section.hidden = false;
    this.listen();
    setUpTimelineTable(timeline, (moment) => this.choose({ anchor: moment, head: moment }));
    this.say();
  }

  private listen(): void {
    const { canvas } = this;
    new ResizeObserver(() => this.arrange()).observe(canvas.parentElement as HTMLElement);
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => this.release());
    canvas.addEventListener("pointercancel", () => this.abandon());
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("keydown", (event) => this.press(event));
    this.clearButton.addEventListener("click", () => this.clear());
  }

  /** Of several processes one alone has its timeline here. */
  private showProcess(): void {
    const { processes } = this.report.summary.recording;
    if (processes < 2) return;
    const { command, pid } = this.timeline.head;
    byId("timeline-process").textContent = printable(
      `${basename(command.split(" ")[0])}, pid ${pid}: of ${processes} processes the one with the highest peak`);
  }

  private arrange(): void {
    const width = (this.canvas.parentElement as HTMLElement).clientWidth;
    if (!width) return;
    this.painter.resize(width, HEIGHT);
    this.paint();
  }

  /* ---- what is chosen ---- */

  private get first(): number {
    return this.range ? Math.min(this.range.anchor, this.range.head) : 0;
  }

  private get last(): number {
    return this.range ? Math.max(this.range.anchor, this.range.head) : 0;
  }

  /** Moments whose figures the views show; of a growth two. */
  private shownMoments(): number[] {
    if (!this.range) return [];
    if (this.aspect === "maximum") return [this.timeline.highest(this.first, this.last)];
    return [this.first, this.last];
  }

  paint(): void {
    const { moments } = this.timeline;
    this.painter.paint({
      range: this.range && { fromMs: moments[this.first].fromMs, toMs: moments[this.last].toMs },
      shown: this.shownMoments().map((moment) => moments[moment]),
      hoverMs: this.hoverMs,
    });
  }

  private describe(): string {
    if (!this.range) return "";
    const { moments } = this.timeline;
    const range = `${formatTime(moments[this.first].fromMs)} – ${formatTime(moments[this.last].toMs)}`;
    const [one, other] = this.shownMoments().map((moment) => moments[moment]);
    if (this.aspect === "maximum") return `${range}: at its maximum, ${formatBytes(one.bytes)} at ${formatMs(one.ms)}`;
    return `${range}: growth from its beginning to its end, ${formatGrowth(other.bytes - one.bytes, "bytes")}: ` +
      `from ${formatBytes(one.bytes)} at ${formatMs(one.ms)} to ${formatBytes(other.bytes)} at ${formatMs(other.ms)}`;
  }

  private say(): void {
    const alone = this.report.summary.recording.processes > 1 ? ", of this process alone" : "";
    const state = byId("timeline-state");
    state.textContent = this.range ? this.describe() + alone : "Drag over the chart to see what was in use then";
    state.dataset.fromMs = this.range ? String(this.timeline.moments[this.first].fromMs) : "";
    state.dataset.toMs = this.range ? String(this.timeline.moments[this.last].toMs) : "";
    this.clearButton.disabled = !this.range;
    this.aspects.show(this.aspect, () => this.range !== null);
  }

  /** Marks the range now; the views follow when it stays. */
  private preview(range: Range | null): void {
    this.range = range;
    this.say();
    this.paint();
  }

  private apply(): void {
    window.clearTimeout(this.timer);
    this.onChoose();
    const figures = this.shownMoments().map((moment) => this.timeline.figuresAt(moment));
    if (!figures.length) this.choice.setFigures(this.whole.after, this.whole.before, false);
    else if (this.aspect === "maximum") this.choice.setFigures(figures[0], null, true);
    else this.choice.setFigures(figures[1], figures[0], true);
    announce(this.range ? this.describe() : "The whole recording");
  }

  private choose(range: Range | null): void {
    this.preview(range);
    this.apply();
  }

  /** Forgets the range, where other figures take the place of its own. */
  drop(): void {
    window.clearTimeout(this.timer);
    this.preview(null);
  }

  /** "from-to-aspect" by moments, or "" where all is shown. */
  get state(): string {
    return this.range ? `${this.range.anchor}-${this.range.head}-${this.aspect}` : "";
  }

  restore(state: string): void {
    const found = /^(\d+)-(\d+)-(maximum|growth)$/.exec(state);
    if (!found) return;
    const last = this.timeline.moments.length - 1;
    this.aspect = found[3] as Aspect;
    this.choose({ anchor: Math.min(Number(found[1]), last), head: Math.min(Number(found[2]), last) });
  }

  private clear(): void {
    if (this.range) this.choose(null);
    this.canvas.focus();
  }

  private setAspect(aspect: Aspect): void {
    this.aspect = aspect;
    this.choose(this.range);
  }

  /* ---- mouse and touch ---- */

  private grab(event: PointerEvent): void {
    if (event.button !== 0) return;
    const moment = this.momentAt(event);
    this.isDragging = true;
    this.rangeBefore = this.range;
    this.canvas.setPointerCapture(event.pointerId);
    this.preview({ anchor: event.shiftKey && this.range ? this.range.anchor : moment, head: moment });
  }

  private move(event: PointerEvent): void {
    this.hoverMs = this.painter.msAt(event.offsetX);
    if (this.isDragging && this.range) this.preview({ anchor: this.range.anchor, head: this.momentAt(event) });
    this.hover(this.hoverMs);
  }

  private release(): void {
    if (!this.isDragging) return;
    this.isDragging = false;
    this.apply();
  }

  /** The browser took the touch, to scroll. */
  private abandon(): void {
    if (this.isDragging) this.preview(this.rangeBefore);
    this.isDragging = false;
  }

  private momentAt(event: PointerEvent): number {
    return this.timeline.momentAt(this.painter.msAt(event.offsetX));
  }

  private hover(ms: number | null): void {
    const { timeline } = this;
    this.hoverMs = ms;
    this.paint();
    if (ms === null) {
      byId("timeline-hover").textContent = "";
      return;
    }
    const point = timeline.pointAt(ms);
    const rss = timeline.rss[point];
    byId("timeline-hover").textContent =
      `${formatMs(timeline.ms[point])} · ${formatBytes(timeline.bytes[point])}${rss ? ` · RSS ${formatBytes(rss)}` : ""}`;
  }

  /* ---- keyboard ---- */

  private press(event: KeyboardEvent): void {
    const end = this.timeline.moments.length - 1;
    const head = this.range?.head;
    const places: Record<string, number> = {
      ArrowRight: head === undefined ? 0 : head + 1,
      ArrowLeft: head === undefined ? end : head - 1,
      PageDown: head === undefined ? 0 : head + PAGE_STEP,
      PageUp: head === undefined ? end : head - PAGE_STEP,
      Home: 0,
      End: end,
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.clear();
    else if (event.key in places) this.moveTo(Math.max(0, Math.min(end, places[event.key])), event.shiftKey);
    else return;
    event.preventDefault();
  }

  private moveTo(moment: number, isExtending: boolean): void {
    this.preview({ anchor: isExtending && this.range ? this.range.anchor : moment, head: moment });
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.apply(), PATIENCE_MS);
  }
}
