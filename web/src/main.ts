// SPDX-License-Identifier: BSD-2-Clause
// Puts the page together: the summary first, then the view that is seen; the others when opened.

import { keysByFunction, keysByLine } from "./aggregate";
import { Choice, Unit, Value, Width, WIDTHS } from "./choice";
import { readReport, Report } from "./data";
import { byId, make, nextPaint } from "./dom";
import { Filter, Role, ROLES } from "./filter";
import { ROLE_WORDS, setUpFilterBar, Threads } from "./filter_bar";
import { FlameGraph } from "./flame";
import { FlameTable } from "./flame_table";
import { basename, counted, formatFigure } from "./format";
import { Link } from "./link";
import { copy, Entry, openMenu, setUpMenu } from "./menu";
import { nameOf, placeOfFunction } from "./names";
import { Palette } from "./palette";
import { makeRadios } from "./radios";
import { Sandwich } from "./sandwich";
import { Search } from "./search";
import { SumsView } from "./sums_view";
import { showSummary } from "./summary";
import { Tabs } from "./tabs";
import { isDark, setUpTheme } from "./theme";
import { TimelineView } from "./timeline";
import { TreeView } from "./tree_view";
import { Trees } from "./trees";
import { ROOT, Tree } from "./tree";

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

interface Toggle {
  isOn(): boolean;
  set(isOn: boolean): void;
}

/** A button that is on or off. */
function setUpToggle(id: string, onChange: (isOn: boolean) => void): Toggle {
  const button = byId(id);
  const isOn = () => button.getAttribute("aria-pressed") === "true";
  const set = (wanted: boolean) => {
    button.setAttribute("aria-pressed", String(wanted));
    onChange(wanted);
  };
  button.addEventListener("click", () => set(!isOn()));
  return { isOn, set };
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
  flamesUp: Toggle;
  reversed: Toggle;
  show(): void;
  /** In other colours. */
  repaint(): void;
}

function makeFlameViews(report: Report, choice: Choice, trees: Trees, onChange: () => void): FlameViews {
  const palette = new Palette(report);
  const flame = new FlameGraph(report, choice, palette, trees.callees);
  const table = new FlameTable(report, choice, flame, trees.callees);
  const search = new Search(report, choice, trees, flame);
  let isReversed = false;
  let isStale = true;
  flame.onZoom = (node) => {
    byId<HTMLButtonElement>("zoom-out").disabled = node === ROOT;
    table.show(trees.get(isReversed), node);
    onChange();
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
  const flamesUp = setUpToggle("flames-up", (isOn) => {
    flame.setFlamesUp(isOn);
    onChange();
  });
  const reversed = setUpToggle("reversed", (isOn) => {
    isReversed = isOn;
    flame.zoomTo(ROOT);
    flame.setTree(trees.get(isOn));
  });
  setUpWidths(report, choice);
  choice.listen(() => showLegend(report, palette));
  showLegend(report, palette);
  const repaint = () => {
    showLegend(report, palette);
    flame.paint();
  };
  return { flame, search, flamesUp, reversed, show, repaint };
}

type MenuOpener = (tree: Tree, node: number, x: number, y: number) => void;

function makeTreeView(report: Report, choice: Choice, trees: Trees, onMenu: MenuOpener): () => void {
  const view = new TreeView(report, choice, "Call tree", onMenu);
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

/** The whole stack of a node, from the outermost frame. */
function stackOf(report: Report, tree: Tree, node: number): string {
  const names = [];
  for (let at = node; at !== ROOT; at = tree.parent(at)) names.unshift(nameOf(report, tree, at));
  return names.join("\n");
}

function makeTables(
  report: Report, choice: Choice, open: (name: string) => void, menu: (name: string, x: number, y: number) => void,
): SumsView[] {
  const { functions, frames, texts } = report;
  const functionName = (id: number) => texts[functions.name[id]];
  const byFunction = new SumsView(report, choice, byId("functions"), () => keysByFunction(report), {
    title: "Function", caption: "Functions", name: functionName,
    place: (id) => placeOfFunction(report, id), open: (id) => open(functionName(id)),
    menu: (id, x, y) => menu(functionName(id), x, y),
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
    menu: (key, x, y) => menu(functionName(functionOf(key)), x, y),
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

  const filter = new Filter(report, choice);
  const trees = new Trees(report, choice);
  let link: Link | null = null;
  const changed = () => link?.update();
  setUpMenu();
  setUpFilterBar(filter);
  filter.listen(changed);
  choice.listen(changed);

  const find = (name: string) => {
    tabs.openId("flame");
    search.find(name);
    byId("flame-canvas").focus();
  };
  /** What can be done with a function, wherever its name stands. */
  const entriesOf = (name: string): Entry[] => [
    { label: "Callers and callees", act: () => {
      sandwich.choose(report.texts.indexOf(name));
      tabs.openId("sandwich");
    } },
    { label: "Find in the flame graph", act: () => find(name) },
    ...ROLES.map((role) => ({
      label: `${ROLE_WORDS[role].action} it`, act: () => filter.add({ role, text: name, isName: true }),
    })),
    { label: "Copy its name", act: () => void copy(name, "the name") },
  ];
  const onMenu: MenuOpener = (tree, node, x, y) => {
    const name = nameOf(report, tree, node);
    const stack = { label: "Copy the stack to it", act: () => void copy(stackOf(report, tree, node), "the stack") };
    openMenu(name, [...entriesOf(name), stack], x, y);
  };

  const { flame, search, flamesUp, reversed, show, repaint } = makeFlameViews(report, choice, trees, changed);
  flame.onMenu = onMenu;
  const timeline = report.timeline && new TimelineView(report, report.timeline, choice);
  const threads = new Threads(report, choice, () => timeline?.drop());
  if (timeline) timeline.onChoose = () => threads.reset();
  setUpTheme(byId("theme"), () => {
    repaint();
    timeline?.paint();
  });
  const [functions, lines] = makeTables(report, choice, find, (name, x, y) => openMenu(name, entriesOf(name), x, y));
  const sandwich: Sandwich = new Sandwich(report, choice, trees, onMenu, changed);
  const tabs: Tabs = new Tabs([
    { id: "flame", title: "Flame graph", show },
    { id: "functions", title: "Functions", show: () => functions.show() },
    { id: "tree", title: "Call tree", show: makeTreeView(report, choice, trees, onMenu) },
    { id: "sandwich", title: "Callers and callees", show: () => sandwich.show() },
    { id: "lines", title: "Source lines", show: () => lines.show() },
  ]);
  tabs.open(0);
  tabs.onOpen = changed;
  choice.listen(() => tabs.refresh());
  byId("search").addEventListener("input", changed);
  setUpShortcuts(search, tabs);

  const textId = (name: string) => report.texts.indexOf(name);
  const one = (get: () => string, set: (value: string) => void) =>
    ({ get: () => [get()], set: (values: string[]) => set(values[0]) });
  const flag = ({ isOn, set }: Toggle) => one(() => (isOn() ? "1" : ""), () => set(true));
  link = new Link([
    ...ROLES.flatMap((role: Role) => [true, false].map((isName) => ({
      key: isName ? role : `${role}-re`,
      get: () => filter.rules.filter((rule) => rule.role === role && rule.isName === isName).map((rule) => rule.text),
      set: (texts: string[]) => texts.forEach((text) => filter.add({ role, text, isName })),
    }))),
    { key: "thread", ...one(() => threads.value, (value) => threads.choose(value)) },
    { key: "range", ...one(() => timeline?.state ?? "", (value) => timeline?.restore(value)) },
    { key: "value", ...one(() => choice.value, (value) => choice.setValue(value as Value)) },
    { key: "unit", ...one(() => choice.unit, (value) => choice.setUnit(value as Unit)) },
    { key: "width", ...one(() => (report.before ? choice.width : ""), (value) => choice.setWidth(value as Width)) },
    { key: "function", ...one(() => sandwich.functionName, (name) => sandwich.choose(textId(name))) },
    { key: "flames-up", ...flag(flamesUp) },
    { key: "reversed", ...flag(reversed) },
    { key: "frame", get: () => flame.zoomPath().map((id) => report.texts[id]),
      set: (names: string[]) => flame.zoomToPath(names.map(textId)) },
    { key: "search", ...one(() => search.text, (text) => search.setText(text)) },
    { key: "tab", ...one(() => tabs.openedId, (id) => tabs.openId(id)) },
  ]);
  link.restore();
  byId("copy-link").addEventListener("click", () => void copy(location.href, "the address"));
  await nextPaint();
  performance.mark("interactive");
}

start().catch((reason) => {
  byId("loading").textContent = `This page cannot be shown: ${reason}`;
});
