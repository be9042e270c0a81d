// SPDX-License-Identifier: BSD-2-Clause
// Flame graphs, part 1 of the script: what there is to draw.
//
// flame_script.c puts the parts into one function. The data come from the element "data", which it
// describes too. Frames are numbered in preorder; frame 0 is the root.
const svg = document.currentScript.ownerSVGElement;
const data = JSON.parse(svg.getElementById('data').textContent);

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

function formatPercent(part, whole) {
	if (!whole)
		return '-';
	const percent = 100 * part / whole;
	return `${(percent > -0.05 && percent <= 0 ? 0 : percent).toFixed(1)}%`;
}

function formatLong(value) {
	if (data.countname || data.unit !== 'bytes')
		return `${formatCount(value)} ${data.countname || data.unit}`;
	return value < 1024 ? `${value} bytes` : `${formatBytes(value)} (${formatCount(value)} bytes)`;
}
