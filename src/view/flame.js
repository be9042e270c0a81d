// SPDX-License-Identifier: BSD-2-Clause
// The script within a flame graph: redraws it for the window, zooms, searches, tells about frames.
//
// What it draws comes from the element "data", see flame_script.c. Frames are numbered in preorder;
// frame 0 is the root. Only what is at least as wide as data.narrow is drawn.
'use strict';
(() => {
const svg = document.currentScript.ownerSVGElement;
const data = JSON.parse(svg.getElementById('data').textContent);
const layer = svg.getElementById('frames');
const SVG = 'http://www.w3.org/2000/svg';
const XHTML = 'http://www.w3.org/1999/xhtml';
const TEXT_INSET = 4, TEXT_BASELINE = 12.5, TIP_LINE = 16, TIP_CELLS = 90, TIP_NAME_LINES = 4;

// ---- frames ----

// Reads the numbers that flame_script.c describes.
function numberReader(text) {
	const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
	const values = new Uint8Array(128);
	[...digits].forEach((digit, value) => { values[digit.charCodeAt(0)] = value; });
	let at = 0;
	const read = {
		more: () => at < text.length,
		number() {
			let sum = 0, scale = 1, digit;
			do {
				digit = values[text.charCodeAt(at++)];
				sum += (digit & 31) * scale;
				scale *= 32;
			} while (digit & 32);
			return sum;
		},
		signed() {
			const number = read.number(), magnitude = Math.floor(number / 2);
			return number % 2 ? -magnitude : magnitude;
		},
	};
	return read;
}

// One array for each property, by frame; `end` is one past the frame's last descendant.
function readFrames() {
	const [value, self, other, base] = data.root;
	const frames = {
		parent: [0], end: [0], depth: [0], fn: [-1], start: [0],
		value: [value], self: [self], other: [other], base: [base],
	};
	const next = [0]; // where the next child of each frame starts
	const read = numberReader(data.frames);
	let parent = 0;
	for (let frame = 1; read.more(); frame++) {
		for (let ended = read.number(); ended > 0; ended--) {
			frames.end[parent] = frame;
			parent = frames.parent[parent];
		}
		frames.parent.push(parent);
		frames.end.push(0);
		frames.depth.push(frames.depth[parent] + 1);
		frames.fn.push(read.number());
		frames.start.push(next[parent]);
		frames.value.push(frames.value[parent] - read.number());
		frames.self.push(read.number());
		frames.other.push(data.other ? frames.other[parent] - read.signed() : 0);
		frames.base.push(data.diff ? read.signed() : 0);
		next.push(next[parent]);
		next[parent] += frames.value[frame];
		parent = frame;
	}
	for (; ; parent = frames.parent[parent]) {
		frames.end[parent] = frames.value.length;
		if (parent === 0)
			return frames;
	}
}

const frames = readFrames();

const nameOf = frame => frames.fn[frame] < 0 ? 'all' : data.functions[frames.fn[frame]][0];

function growthColor(before, after) {
	const larger = Math.max(before, after);
	const growth = larger > 0 ? (after - before) / larger : 0, size = Math.abs(growth);
	if (size <= 0.005)
		return 6;
	const step = size < 1 ? 1 + Math.floor(size * 6) : 6;
	return growth < 0 ? 6 - step : 6 + step;
}

function colorOf(frame) {
	if (data.growthColors)
		return growthColor(frames.base[frame], frames.value[frame]);
	if (frame === 0)
		return data.rootColor;
	return data.functions[frames.fn[frame]][4];
}

// ---- numbers as people read them: as hl_format_bytes() and its like ----

const formatCount = count => Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, ',');

function formatBytes(bytes) {
	const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
	let size = Math.abs(bytes), unit = -1;
	while (size >= (unit < 0 ? 1024 : 1023.95) && unit + 1 < units.length) {
		size /= 1024;
		unit++;
	}
	const sign = bytes < 0 ? '-' : '';
	return unit < 0 ? `${sign}${size} B` : `${sign}${size.toFixed(1)} ${units[unit]}`;
}

const formatIn = (unit, number) => unit === 'bytes' ? formatBytes(number) : formatCount(number);
const formatShort = value => formatIn(data.countname ? '' : data.unit, value);
const formatPercent = (part, whole) => whole ? `${(100 * part / whole).toFixed(1)}%` : '-';

function formatLong(value) {
	if (data.countname || data.unit !== 'bytes')
		return `${formatCount(value)} ${data.countname || data.unit}`;
	return value < 1024 ? `${value} bytes` : `${formatBytes(value)} (${formatCount(value)} bytes)`;
}

// ---- elements ----

function element(name, attributes, parent, text) {
	const made = document.createElementNS(SVG, name);
	for (const key in attributes)
		made.setAttribute(key, attributes[key]);
	if (text !== undefined)
		made.textContent = text;
	if (parent)
		parent.appendChild(made);
	return made;
}

function addStyle() {
	const style = element('style', {}, null, `
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
		#search { font: 12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; width: 100%;
			height: 100%; box-sizing: border-box; border: 1px solid #8a949f; border-radius: 4px;
			padding: 0 6px; background: #fff; color: #16191d }
		#search.bad { border-color: #b3261e; background: #fdeceb }`);
	svg.insertBefore(style, svg.firstChild);
}

// The width of a character as this browser draws it.
function measureCell() {
	const probe = element('text', {x: 0, y: -100}, svg, 'M'.repeat(100));
	const width = probe.getComputedTextLength() / 100;
	probe.remove();
	return width > 0 ? width : data.cell;
}

// ---- state ----

const state = {
	width: 0,
	zoomed: 0,       // the frame that fills the width
	depthMax: 0,     // of what was drawn so far
	found: null,     // by function: whether the search matches; null: no search
	drawn: [],       // frames that are drawn, in preorder
	elements: new Map(), // by frame
	current: -1,     // the frame with the keyboard's focus
};

let cell = data.cell;

// ---- drawing ----

const plotWidth = () => state.width - 2 * data.margin;
const isAbove = frame => frame < state.zoomed && frames.end[frame] > state.zoomed;

function extentOf(frame) {
	const zoomed = state.zoomed;
	if (isAbove(frame) || frame === zoomed || frames.value[zoomed] <= 0)
		return {left: data.margin, width: plotWidth()};
	const scale = plotWidth() / frames.value[zoomed];
	return {
		left: data.margin + (frames.start[frame] - frames.start[zoomed]) * scale,
		width: frames.value[frame] * scale,
	};
}

// Frames that are wide enough: the zoomed one with its callers, and what it called.
function chooseFrames() {
	const chosen = [], zoomed = state.zoomed;
	for (let frame = zoomed; frame > 0; frame = frames.parent[frame])
		chosen.push(frames.parent[frame]);
	chosen.reverse();
	const least = data.narrow * frames.value[zoomed] / plotWidth();
	for (let frame = zoomed; frame < frames.end[zoomed];) {
		const drawn = frame === zoomed || frames.value[frame] >= least;
		if (drawn)
			chosen.push(frame);
		frame = drawn ? frame + 1 : frames.end[frame];
	}
	return chosen;
}

function formatGrowth(frame) {
	const growth = frames.value[frame] - frames.base[frame];
	return `${growth > 0 ? '+' : ''}${formatShort(growth)}`;
}

function labelOf(frame, width) {
	const room = Math.floor((width - 2 * TEXT_INSET) / cell);
	const name = nameOf(frame), value = formatShort(frames.value[frame]) +
		(data.diff ? ` (${formatGrowth(frame)})` : '');
	if (room < data.labelCells)
		return null;
	if (name.length > room)
		return {name: name.slice(0, room - 1) + '…'};
	return name.length + 2 + value.length <= room ? {name, value} : {name};
}

const describe = frame => `${nameOf(frame)}, ${formatLong(frames.value[frame])}, ` +
	formatPercent(frames.value[frame], frames.value[0]);

function classOf(frame) {
	const found = state.found && frames.fn[frame] >= 0 && state.found[frames.fn[frame]];
	return `c${colorOf(frame)}${found ? ' found' : ''}`;
}

function drawFrame(frame, top) {
	const {left, width} = extentOf(frame);
	const label = labelOf(frame, width);
	const gap = width > 4 ? 1 : width / 4;
	const rect = {
		class: classOf(frame), x: left.toFixed(2), y: top,
		width: (width - gap).toFixed(2), height: data.row - 1,
	};
	const made = label ? element('g', {tabindex: 0, role: 'treeitem'}) : element('rect', rect);
	if (isAbove(frame))
		made.classList.add('above');
	if (label) {
		element('rect', {...rect, rx: 2}, made);
		const text = element('text', {x: left + TEXT_INSET, y: top + TEXT_BASELINE}, made,
			label.name);
		if (label.value)
			element('tspan', {dx: 8}, text, label.value);
		made.setAttribute('aria-label', describe(frame));
		made.setAttribute('aria-level', frames.depth[frame] + 1);
	}
	made.frame = frame;
	return made;
}

const topOf = frame =>
	data.top + data.row * (data.icicle ? frames.depth[frame] : state.depthMax - frames.depth[frame]);

function resize() {
	const height = data.top + data.row * (state.depthMax + 1) + 14;
	svg.setAttribute('width', state.width);
	svg.setAttribute('height', height);
	svg.setAttribute('viewBox', `0 0 ${state.width} ${height}`);
	placeControls();
}

function draw() {
	const fragment = document.createDocumentFragment();
	state.drawn = chooseFrames();
	for (const frame of state.drawn)
		state.depthMax = Math.max(state.depthMax, frames.depth[frame]);
	state.elements.clear();
	for (const frame of state.drawn) {
		const made = drawFrame(frame, topOf(frame));
		state.elements.set(frame, made);
		fragment.appendChild(made);
	}
	layer.replaceChildren(fragment);
	resize();
	hideTip();
}

// ---- zoom ----

function zoom(frame, keepFocus) {
	state.zoomed = frame;
	draw();
	buttons.reset.setAttribute('visibility', frame ? 'visible' : 'hidden');
	if (keepFocus)
		focusFrame(frame);
}

// ---- tooltip ----

const tip = element('g', {id: 'tip', visibility: 'hidden'});

function wrapped(text) {
	const lines = [];
	for (let at = 0; at < text.length && lines.length < TIP_NAME_LINES; at += TIP_CELLS)
		lines.push(text.slice(at, at + TIP_CELLS));
	if (text.length > TIP_CELLS * TIP_NAME_LINES)
		lines[TIP_NAME_LINES - 1] = lines[TIP_NAME_LINES - 1].slice(0, -1) + '…';
	return lines;
}

function growthLine(frame) {
	const before = frames.base[frame], grown = frames.value[frame] - before;
	const share = before > 0 ? `, ${grown > 0 ? '+' : ''}${formatPercent(grown, before)}` : '';
	return {
		text: `before ${formatLong(before)}: ${formatGrowth(frame)}${share}`,
		class: grown > 0 ? 'grew' : grown < 0 ? 'shrank' : '',
	};
}

function placeOf(frame) {
	const [, module, file, line] = data.functions[frames.fn[frame]];
	const place = file ? `${file}${line ? `:${line}` : ''}` : '';
	return [place, data.modules[module]].filter(Boolean);
}

function tipLines(frame) {
	const value = frames.value[frame], total = frames.value[0], zoomed = state.zoomed;
	const lines = wrapped(nameOf(frame)).map(text => ({text, class: 'name'}));
	const ofZoomed = zoomed && frame >= zoomed && frame < frames.end[zoomed] && frame !== zoomed
		? `, ${formatPercent(value, frames.value[zoomed])} of the zoomed frame` : '';
	lines.push({text: `${formatLong(value)}, ${formatPercent(value, total)} of all${ofZoomed}`});
	if (data.diff)
		lines.push(growthLine(frame));
	if (data.other)
		lines.push({text: data.other === 'bytes' ? formatBytes(frames.other[frame])
			: `${formatCount(frames.other[frame])} objects`});
	if (!data.reversed && frames.self[frame])
		lines.push({text: `itself ${formatLong(frames.self[frame])}`});
	if (frame)
		for (const place of placeOf(frame))
			lines.push({text: place.length > TIP_CELLS ? '…' + place.slice(1 - TIP_CELLS) : place});
	return lines;
}

// Near (x, y), on the side where there is room.
function showTip(frame, x, y) {
	const lines = tipLines(frame);
	const width = Math.max(...lines.map(line => line.text.length)) * cell * 1.02 + 20;
	const height = lines.length * TIP_LINE + 12;
	const view = svg.getBoundingClientRect();
	const bottom = Math.min(window.innerHeight - view.top, view.height);
	const left = Math.max(2, Math.min(x + 14, state.width - width - 2));
	const top = y + 18 + height < bottom ? y + 18 : Math.max(2 - Math.min(0, view.top), y - height - 8);
	tip.replaceChildren();
	element('rect', {x: left, y: top, width, height, rx: 5}, tip);
	lines.forEach((line, i) => element('text',
		{x: left + 10, y: top + 19 + i * TIP_LINE, class: line.class || ''}, tip, line.text));
	tip.setAttribute('visibility', 'visible');
}

function hideTip() {
	tip.setAttribute('visibility', 'hidden');
}

// ---- controls ----

const buttons = {};
const controls = element('g', {id: 'controls'});
const panel = element('rect', {y: -4, height: 32, rx: 4, fill: '#fff', 'fill-opacity': .92,
	visibility: 'hidden'}, controls);
const matched = element('text', {x: -432, y: 16, class: 'plain', 'text-anchor': 'end', role: 'status',
	'aria-live': 'polite'}, controls);
const box = element('foreignObject', {x: -420, y: 0, width: 240, height: 24, visibility: 'hidden'}, controls);
const input = document.createElementNS(XHTML, 'input');

function addButton(name, label, left, width, act) {
	const button = element('g', {class: 'button', tabindex: 0, role: 'button', id: name,
		transform: `translate(${left} 0)`}, controls);
	element('rect', {width, height: 24, rx: 4}, button);
	element('text', {x: width / 2, y: 16}, button, label);
	button.addEventListener('click', act);
	button.addEventListener('keydown', event => {
		if (event.key !== 'Enter' && event.key !== ' ')
			return;
		event.preventDefault();
		event.stopPropagation();
		act();
	});
	buttons[name] = button;
}

// At the right of the picture's top, or of the window's when that is farther down.
function placeControls() {
	const right = state.width - data.margin;
	const scrolled = Math.max(0, -svg.getBoundingClientRect().top);
	controls.setAttribute('transform', `translate(${right} ${scrolled + 12})`);
}

function addControls() {
	addButton('reset', 'Reset zoom', -168, 90, () => zoom(0, true));
	addButton('find', 'Search', -70, 70, openSearch);
	buttons.reset.setAttribute('visibility', 'hidden');
	input.id = 'search';
	input.type = 'text';
	input.placeholder = 'regular expression';
	input.setAttribute('aria-label', 'Search names by regular expression');
	input.addEventListener('input', () => search(input.value));
	input.addEventListener('keydown', event => {
		event.stopPropagation();
		if (event.key === 'Escape')
			closeSearch();
		else if (event.key === 'Enter')
			focusFrame(state.drawn.find(frame => state.found && state.found[frames.fn[frame]]) ?? -1);
	});
	box.appendChild(input);
	svg.append(controls, tip);
}

// ---- search ----

function openSearch() {
	box.setAttribute('visibility', 'visible');
	panel.setAttribute('visibility', 'visible');
	search(input.value);
	input.focus();
	input.select();
}

function closeSearch() {
	box.setAttribute('visibility', 'hidden');
	panel.setAttribute('visibility', 'hidden');
	input.value = '';
	search('');
	input.blur();
}

// Frames with matching names, and their value; what lies above a match is not counted twice.
function sumMatches() {
	let count = 0, value = 0;
	for (let frame = 1, covered = 0; frame < frames.value.length; frame++) {
		if (!state.found[frames.fn[frame]])
			continue;
		count++;
		if (frame < covered)
			continue;
		value += frames.value[frame];
		covered = frames.end[frame];
	}
	return {count, value};
}

function expressionOf(text) {
	try {
		return new RegExp(text, 'i');
	} catch {
		return null;
	}
}

function search(text) {
	const expression = expressionOf(text);
	input.classList.toggle('bad', !expression);
	state.found = text && expression ? data.functions.map(([name]) => expression.test(name)) : null;
	layer.classList.toggle('searched', !!state.found);
	for (const [frame, made] of state.elements)
		(made.tagName === 'g' ? made.firstChild : made).setAttribute('class', classOf(frame) +
			(made.tagName !== 'g' && isAbove(frame) ? ' above' : ''));
	tellMatches(expression);
}

// Left of the box, on paper that keeps it legible above the title and the frames.
function tellMatches(expression) {
	if (state.found) {
		const {count, value} = sumMatches();
		matched.textContent = `${formatPercent(value, frames.value[0])} matched: ` +
			`${formatShort(value)} in ${formatCount(count)} frame${count === 1 ? '' : 's'}`;
	} else {
		matched.textContent = expression ? '' : 'not a regular expression';
	}
	const width = 432 + matched.textContent.length * cell + 12;
	panel.setAttribute('x', -width);
	panel.setAttribute('width', width + 4);
}

// ---- mouse and keyboard ----

const frameAt = target => {
	const made = target.closest && target.closest('#frames > *');
	return made && made.frame !== undefined ? made.frame : -1;
};

function focusFrame(frame) {
	const made = state.elements.get(frame);
	if (!made)
		return;
	made.setAttribute('tabindex', 0);
	made.focus();
}

// The frame next to ${frame} in its row, among those that are drawn.
function besides(frame, step) {
	for (let i = state.drawn.indexOf(frame) + step; i >= 0 && i < state.drawn.length; i += step)
		if (frames.depth[state.drawn[i]] === frames.depth[frame])
			return state.drawn[i];
	return frame;
}

function heaviestChild(frame) {
	let heaviest = frame;
	for (let child = frame + 1; child < frames.end[frame]; child = frames.end[child])
		if (state.elements.has(child) &&
			(heaviest === frame || frames.value[child] > frames.value[heaviest]))
			heaviest = child;
	return heaviest;
}

function move(key) {
	const frame = state.current < 0 ? state.zoomed : state.current;
	const outward = data.icicle ? 'ArrowUp' : 'ArrowDown';
	if (state.current < 0)
		focusFrame(frame);
	else if (key === 'ArrowLeft' || key === 'ArrowRight')
		focusFrame(besides(frame, key === 'ArrowLeft' ? -1 : 1));
	else
		focusFrame(key === outward ? frames.parent[frame] : heaviestChild(frame));
}

function onKey(event) {
	const opensSearch = event.key === '/' || ((event.ctrlKey || event.metaKey) && event.key === 'f');
	if (!opensSearch && (event.ctrlKey || event.metaKey || event.altKey))
		return;
	if (opensSearch)
		openSearch();
	else if (event.key.startsWith('Arrow'))
		move(event.key);
	else if (event.key === 'Enter' && state.current >= 0)
		zoom(state.current, true);
	else if (event.key === 'Escape' && state.zoomed)
		zoom(0, state.current >= 0);
	else if (event.key === 'Escape')
		closeSearch();
	else
		return;
	event.preventDefault();
}

function onFocus(event) {
	state.current = frameAt(event.target);
	if (state.current < 0)
		return;
	const {left, width} = extentOf(state.current);
	showTip(state.current, left + Math.min(width / 2, 60), topOf(state.current) + data.row / 2);
}

function addListeners() {
	const show = event => {
		const frame = frameAt(event.target);
		const view = svg.getBoundingClientRect();
		if (frame < 0)
			hideTip();
		else
			showTip(frame, event.clientX - view.left, event.clientY - view.top);
	};
	layer.addEventListener('mousemove', show);
	layer.addEventListener('mouseleave', hideTip);
	// Not on the layer, which browsers would make a stop of the Tab key for it.
	window.addEventListener('focusin', onFocus);
	window.addEventListener('focusout', () => {
		state.current = -1;
		hideTip();
	});
	layer.addEventListener('click', event => {
		const frame = frameAt(event.target);
		if (frame >= 0)
			zoom(frame, false);
	});
	window.addEventListener('keydown', onKey);
	window.addEventListener('resize', fit);
	window.addEventListener('scroll', placeControls);
}

// Takes the window's width.
function fit() {
	const width = Math.max(document.documentElement.clientWidth || window.innerWidth,
		data.minimumWidth);
	if (width === state.width)
		return;
	state.width = width;
	draw();
}

addStyle();
cell = measureCell();
addControls();
layer.setAttribute('role', 'tree');
layer.setAttribute('aria-label', 'Frames');
addListeners();
fit();
performance.mark('interactive');
})();
