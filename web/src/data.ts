// SPDX-License-Identifier: BSD-2-Clause
// The profile as the page holds it: typed arrays, by id. The words are those of profile.h.

import { ColumnReader } from "./columns";
import { Timeline, TimelineHead } from "./timeline_data";

export interface Module {
  path: string;
  symbols: string;
  reason: string;
}

/** The JSON that `heapline report --json` writes, too. */
export interface Summary {
  recording: {
    name: string;
    /** Kind of file: "recording", "pprof", ... */
    source: string;
    command: string;
    pid: number;
    start: string;
    mode: string;
    sample_bytes: number;
    duration_ms: number;
    processes: number;
    /** Of several processes, whose peaks are summed up. */
    highest_peak_bytes?: number;
    highest_peak_pid?: number;
    /** What was in use when programs were replaced by exec. */
    replaced_inuse_bytes?: number;
  };
  value: string;
  unit: string;
  host: string;
  kernel: string;
  tool_version: string;
  filter: string;
  /** The earlier profile, where two are compared. */
  base?: { name: string; duration_ms: number };
  notes: string[];
  modules: Module[];
}

interface ThreadHead {
  pid: number;
  tid: number;
  name: string;
  leaves: number;
}

interface Content extends Summary {
  figures: string[];
  texts: string[];
  functions: number;
  frames: number;
  nodes: number;
  leaves: number;
  /** Where there are several, the ones that allocated most. */
  threads: ThreadHead[];
  timeline?: TimelineHead;
}

/** Figures of the leaves, a column for each that is known: "peak_bytes", ... */
export type Figures = Map<string, Float64Array>;

/** What one thread did. */
export interface Thread {
  pid: number;
  tid: number;
  name: string;
  figures(): Figures;
}

export interface Report {
  summary: Summary;
  figureNames: string[];
  texts: string[];
  functions: {
    count: number; name: Uint32Array; file: Uint32Array; line: Uint32Array; module: Uint32Array;
    /** 1: allocation plumbing, which is folded where it ends a stack. */
    plumbing: Uint32Array;
  };
  frames: { count: number; functionId: Uint32Array; file: Uint32Array; line: Uint32Array };
  /** In preorder: the subtree of a node is the run of nodes from its own id to `end`. */
  nodes: { count: number; parent: Uint32Array; end: Uint32Array; frame: Uint32Array };
  /** Nodes with figures. */
  leaves: Uint32Array;
  /** Those that are shown: of the whole, or of a moment that was chosen. */
  after: Figures;
  before: Figures | null;
  threads: Thread[];
  /** Where the recording has a log. */
  timeline: Timeline | null;
}

// Not in TypeScript 4.8's own declarations.
declare const DecompressionStream: {
  new (format: "deflate"): ReadableWritablePair<Uint8Array, Uint8Array>;
};

async function inflate(base64: string): Promise<Uint8Array> {
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < packed.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Parents and ends out of the number of levels that each node is further out. */
function readNodes(reader: ColumnReader, count: number): Report["nodes"] {
  const levelsOut = reader.ids(count, 1);
  const parent = new Uint32Array(count);
  const end = new Uint32Array(count).fill(count);
  for (let i = 1; i < count; i++) {
    let around = i - 1;
    for (let levels = levelsOut[i]; levels > 0; levels--) {
      end[around] = i;
      around = parent[around];
    }
    parent[i] = around;
  }
  return { count, parent, end, frame: reader.ids(count, 1) };
}

function readFigures(reader: ColumnReader, content: Content): Figures {
  return new Map(content.figures.map((name) => [name, reader.signed(content.leaves)]));
}

function readFunctions(reader: ColumnReader, count: number): Report["functions"] {
  const [name, file, line, module, plumbing] = [1, 2, 3, 4, 5].map(() => reader.ids(count, 1));
  return { count, name, file, line, module, plumbing };
}

function readFrames(reader: ColumnReader, count: number): Report["frames"] {
  const [functionId, file, line] = [1, 2, 3].map(() => reader.ids(count, 1));
  return { count, functionId, file, line };
}

/** Figures of some leaves, made columns of all leaves when they are asked for. */
function readThread(reader: ColumnReader, head: ThreadHead, content: Content): Thread {
  const leaves = reader.ascending(head.leaves);
  const columns = content.figures.map((name): [string, Float64Array] => [name, reader.signed(head.leaves)]);
  const spread = (column: Float64Array) => {
    const all = new Float64Array(content.leaves);
    leaves.forEach((leaf, i) => (all[leaf] = column[i]));
    return all;
  };
  return {
    pid: head.pid, tid: head.tid, name: head.name,
    figures: () => new Map(columns.map(([name, column]) => [name, spread(column)])),
  };
}

export async function readReport(base64: string): Promise<Report> {
  const bytes = await inflate(base64);
  const jsonEnd = bytes.indexOf(0);
  const content = JSON.parse(new TextDecoder().decode(bytes.subarray(0, jsonEnd))) as Content;
  const reader = new ColumnReader(bytes, jsonEnd + 1);
  return {
    summary: content,
    figureNames: content.figures,
    texts: content.texts,
    functions: readFunctions(reader, content.functions),
    frames: readFrames(reader, content.frames),
    nodes: readNodes(reader, content.nodes),
    leaves: reader.ascending(content.leaves),
    after: readFigures(reader, content),
    before: content.base ? readFigures(reader, content) : null,
    threads: content.threads.map((head) => readThread(reader, head, content)),
    timeline: content.timeline ? new Timeline(content.timeline, reader, content.leaves) : null,
  };
}
