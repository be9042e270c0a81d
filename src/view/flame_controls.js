// SPDX-License-Identifier: BSD-2-Clause
// Flame graphs, part 3 of the script: tells about frames, searches them, answers to mouse and
// keyboard.
const XHTML = 'http://www.w3.org/1999/xhtml';
const TIP_LINE = 16, TIP_CELLS = 90, TIP_NAME_LINES = 4;

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
	const place = file ? `defined at ${file}${line ? `:${line}` : ''}` : '';
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
			: `${formatCount(frames.other[frame])} ${data.other}`});
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
const panel = element('rect', {y: -4, height: 32, rx: 4, class: 'panel', 'fill-opacity': .92,
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
	const outward = data.flamesUp ? 'ArrowDown' : 'ArrowUp';
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
