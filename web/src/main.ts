// SPDX-License-Identifier: BSD-2-Clause
// Puts the page together: the summary first, then the view that is seen; the others when opened.

import { keysByFunction, keysByLine } from "./aggregate";
import { Choice, Width, WIDTHS } from "./choice";
import { readReport, Report } from "./data";
import { byId, make, nextPaint } from "./dom";
import { FlameGraph } from "./flame";
import { FlameTable } from "./flame_table";
import { basename, counted, formatFigure } from "./format";
import { placeOfFunction } from "./names";
import { Palette } from "./palette";
import { makeRadios } from "./radios";
import { Search } from "./search";
import { SumsView } from "./sums_view";
import { showSummary } from "./summary";
import { Tabs } from "./tabs";
import { isDark, setUpTheme } from "./theme";
import { TimelineView } from "./timeline";
import { TreeView } from "./tree_view";
import { Trees } from "./trees";
import { ROOT } from "./tree";

const WIDTH_WORDS: Record<Width, string> = { after: "After", before: "Before", growth: "Growth" };

function showLegend(report: Report, palette: Palette): void {
  const entries = report.before
    ? [
      { color: palette.byGrowth(0, 1, isDark()), text: "all of it is new" },
      { color: palette.byGrowth(1, 2, isDark()), text: "doubled" },
      { color: palette.byGrowth(1, 1, isDark()), text: "as before" },
      { color: palette.byGrowth(2, 1, isDark()), text: "halved" },
      { color: palette.byGrowth(1, 0, isDark()), text: "gone" },
    ]
    : palette.legend(isDark());
  byId("legend").replaceChildren(...entries.map(({ color, text }) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = color;
    return make("li", {}, swatch, text);
  }));
}

/** A button that is on or off. */
function setUpToggle(id: string, onChange: (isOn: boolean) => void): void {
  const button = byId(id);
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isOn));
    onChange(isOn);
  });
}

function setUpWidths(report: Report, choice: Choice): void {
  const widths = makeRadios("width", "Width of frames", "segments",
    WIDTHS.map((width) => ({ key: width, label: [WIDTH_WORDS[width]] })), (width) => choice.setWidth(width));
  byId("widths").append(widths.element);
  const show = () => {
    byId("widths").hidden = !report.before;
    widths.show(choice.width);
  };
  choice.listen(show);
  show();
}

/** Says what has no place in the picture. */
function showUndrawn(choice: Choice, trees: Trees): void {
  const { count, sum } = trees.callees.undrawn;
  const stacks = counted(count, "stack");
  const what = choice.width === "growth" ? `${stacks} that shrank` : `${stacks} of less than nothing`;
  byId("undrawn").textContent = count ? `Not drawn: ${what}, ${formatFigure(sum, choice.unit)} in all` : "";
}

interface FlameViews {
  flame: FlameGraph;
  search: Search;
  show(): void;
  /** In other colours. */
  repaint(): void;
}

function makeFlameViews(report: Report, choice: Choice, trees: Trees): FlameViews {
  const palette = new Palette(report);
  const flame = new FlameGraph(report, choice, palette, trees.callees);
  const table = new FlameTable(report, choice, flame, trees.callees);
  const search = new Search(report, choice, trees.callees, flame);
  let isReversed = false;
  let isStale = true;
  flame.onZoom = (node) => {
    byId<HTMLButtonElement>("zoom-out").disabled = node === ROOT;
    table.show(trees.get(isReversed), node);
  };
  const show = () => {
    if (!isStale) return;
    isStale = false;
    flame.setTree(trees.get(isReversed));
    search.apply();
    showUndrawn(choice, trees);
  };
  choice.listen(() => (isStale = true));
  byId("zoom-out").addEventListener("click", () => flame.zoomTo(ROOT));
  setUpToggle("flames-up", (isOn) => flame.setFlamesUp(isOn));
  setUpToggle("reversed", (isOn) => {
    isReversed = isOn;
    flame.setTree(trees.get(isOn));
  });
  setUpWidths(report, choice);
  choice.listen(() => showLegend(report, palette));
  showLegend(report, palette);
  const repaint = () => {
    showLegend(report, palette);
    flame.paint();
  };
  return { flame, search, show, repaint };
}

function makeTreeView(report: Report, choice: Choice, trees: Trees): () => void {
  const view = new TreeView(report, choice);
  let isReversed = false;
  let isStale = true;
  byId("tree-scroll").append(view.element);
  choice.listen(() => (isStale = true));
  setUpToggle("tree-reversed", (isOn) => {
    isReversed = isOn;
    view.show(trees.get(isOn));
  });
  return () => {
    if (isStale) view.show(trees.get(isReversed));
    isStale = false;
  };
}

function makeTables(report: Report, choice: Choice, open: (name: string) => void): SumsView[] {
  const { functions, frames, texts } = report;
  const functionName = (id: number) => texts[functions.name[id]];
  const byFunction = new SumsView(report, choice, byId("functions"), () => keysByFunction(report), {
    title: "Function", caption: "Functions", name: functionName,
    place: (id) => placeOfFunction(report, id), open: (id) => open(functionName(id)),
  });
  const lines = keysByLine(report);
  const functionOf = (key: number) => frames.functionId[lines.frame[key]];
  const byLine = new SumsView(report, choice, byId("lines"), () => lines, {
    title: "Line", caption: "Source lines",
    name: (key) => {
      const frame = lines.frame[key];
      return frames.file[frame] ? `${texts[frames.file[frame]]}:${frames.line[frame]}` : functionName(functionOf(key));
    },
    place: (key) => frames.file[lines.frame[key]] ? functionName(functionOf(key))
      : basename(report.summary.modules[functions.module[functionOf(key)]].path),
    open: (key) => open(functionName(functionOf(key))),
  });
  return [byFunction, byLine];
}

function setUpShortcuts(search: Search, tabs: Tabs): void {
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    tabs.openId("flame");
    search.focus();
  });
}

async function start(): Promise<void> {
  const data = byId("data");
  const report = await readReport(data.textContent ?? "");
  data.remove();
  const choice = new Choice(report);
  showSummary(report, choice);
  byId("loading").remove();
  byId("page").hidden = false;
  performance.mark("summary");
  await nextPaint();

  const trees = new Trees(report, choice);
  const { search, show, repaint } = makeFlameViews(report, choice, trees);
  const timeline = report.timeline && new TimelineView(report, report.timeline, choice);
  setUpTheme(byId("theme"), () => {
    repaint();
    timeline?.paint();
  });
  const [functions, lines] = makeTables(report, choice, (name) => {
    tabs.openId("flame");
    search.find(name);
    byId("flame-canvas").focus();
  });
  const tabs: Tabs = new Tabs([
    { id: "flame", title: "Flame graph", show },
    { id: "functions", title: "Functions", show: () => functions.show() },
    { id: "tree", title: "Call tree", show: makeTreeView(report, choice, trees) },
    { id: "lines", title: "Source lines", show: () => lines.show() },
  ]);
  tabs.open(0);
  choice.listen(() => tabs.refresh());
  setUpShortcuts(search, tabs);
  await nextPaint();
  performance.mark("interactive");
}

start().catch((reason) => {
  byId("loading").textContent = `This page cannot be shown: ${reason}`;
});
