// SPDX-License-Identifier: BSD-2-Clause
// Builds indexes of made-up words, with buffers outside of the script's heap. usage: words.js ROUNDS
let sum = 0;
for (let round = 0; round < Number(process.argv[2]); round++) {
	const places = new Map();
	for (let place = 0; place < 20000; place++) {
		const word = `a word that is made up, ${place * 7919 % 15013}`;
		places.set(word, [...(places.get(word) ?? []), place]);
	}
	for (const [word, found] of places)
		if (found.length > 1)
			sum += Buffer.allocUnsafeSlow(64).fill(word).length;
	sum += JSON.stringify([...places]).length;
}
console.log(sum);
