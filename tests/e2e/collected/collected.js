// SPDX-License-Identifier: BSD-2-Clause
// Makes garbage, and keeps some of it when asked to: collected.js leak|none STEPS
const [kind, steps] = process.argv.slice(2), kept = [];
let done = 0;

function step() {
  const garbage = [];
  for (let i = 0; i < 2000; i++)
    garbage.push({name: `request ${done}/${i}`, data: new Array(20).fill(i)});
  if (kind === "leak")
    kept.push(garbage.slice(0, 200));
  if (++done < steps)
    setTimeout(step, 8);
}

step();
