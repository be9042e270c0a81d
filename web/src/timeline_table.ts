// SPDX-License-Identifier: BSD-2-Clause
// The timeline as a table: what the canvas shows, for those who do not see it.

import { byId, make } from "./dom";
import { formatBytes, formatExact } from "./format";
import { formatMs, formatTime } from "./timeline_axis";
import { Timeline } from "./timeline_data";

/** What happened in a part, in words. */
function remarks(timeline: Timeline, fromMs: number, toMs: number): string {
  const { marks, holes } = timeline.head;
  const texts = marks.filter(({ ms }) => ms >= fromMs && ms < toMs).map(({ text }) => text);
  if (holes.some((hole) => hole.first_ms < toMs && hole.last_ms >= fromMs)) texts.push("not all of it could be written");
  return texts.join(", ");
}

/** Fills the table when it is opened; `choose` is called with the moment whose button is pressed. */
export function setUpTimelineTable(timeline: Timeline, choose: (moment: number) => void): void {
  const details = byId<HTMLDetailsElement>("timeline-table");
  const figure = (bytes: number) =>
    make("td", { class: "number", title: formatExact(bytes, "bytes"), "data-figure": bytes }, bytes ? formatBytes(bytes) : "-");
  details.addEventListener("toggle", () => {
    if (!details.open || byId("timeline-body").firstChild) return;
    byId("timeline-body").append(...timeline.moments.map(({ fromMs, toMs, ms, bytes, rss }, i) =>
      make("tr", {},
        make("th", { scope: "row", class: "text" }, make("button", { type: "button", class: "name", click: () => choose(i) },
          `${formatTime(fromMs)} – ${formatTime(toMs)}`)),
        make("td", { class: "number" }, formatMs(ms)),
        figure(bytes), figure(rss),
        make("td", { class: "text" }, remarks(timeline, fromMs, toMs)))));
  });
}
