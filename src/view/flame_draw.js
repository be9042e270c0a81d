// SPDX-License-Identifier: BSD-2-Clause
// Flame graphs, part 2 of the script: draws frames for the window and for what is zoomed to. Only
// what is at least as wide as data.narrow is drawn.
const layer = svg.getElementById('frames');
const SVG = 'http://www.w3.org/2000/svg';
const TEXT_INSET = 4, TEXT_BASELINE = 12.5;

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
		}`);
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
	data.top + data.row * (data.flamesUp ? state.depthMax - frames.depth[frame] : frames.depth[frame]);

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
