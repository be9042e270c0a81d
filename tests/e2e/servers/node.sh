# SPDX-License-Identifier: BSD-2-Clause
# A shop that keeps each visitor's session and a Buffer. bash begins it in an empty folder; $PID is the process that grows.
cat > shop.js <<'END'
const sessions = new Map();
const bodies = [];

function keepBody(number) {
  bodies.push(Buffer.alloc(20000, number & 255));
}

function handle(number) {
  sessions.set('session ' + number, { number, cart: [number] });
  keepBody(number);
}

let number = 0;
while (number < 1500) handle(number++);
console.log('ready');
setInterval(() => handle(number++), 5);
END
node --perf-basic-prof shop.js > shop.log &
PID=$!
until grep -q ready shop.log; do kill -0 $PID; sleep 0.1; done
