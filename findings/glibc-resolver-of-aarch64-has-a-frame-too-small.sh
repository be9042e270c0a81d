#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# glibc 2.36 for arm64 (Debian 12, libc6 2.36-9+deb12u14): the first stub of a procedure linkage table stores x16 and x30 ("stp x16, x30, [sp, #-16]!")
# before it jumps to _dl_runtime_resolve, whose call frame information begins with the stack pointer as it is then, and says that x30 is at CFA+8. So
# the frame of the function that calls a lazily bound one is 16 bytes too low: whoever unwinds from within the resolver (a signal handler, a malloc of
# an audit library) has that caller right, and takes wrong words for what lies outward. libunwind 1.6.2 and heapline go astray there alike; backtrace(3)
# reads the same rules.
#
# Seen: .plt of libresolv.so.2 begins with a9bf7bf0; the resolver's rules say "x30 at cfa+8", and no CFA but of 0 and 208 bytes above sp, which
# it takes itself by "stp x8, x9, [sp, #-208]!".
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p apt/lists/partial apt/archives/partial
touch apt/status
apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::State::status=$folder/apt/status"
	-o "Dir::Cache=$folder/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
apt-get "${apt[@]}" download libc6=2.36-9+deb12u14 >/dev/null
dpkg -x libc6_*.deb root

readelf -x .plt root/lib/aarch64-linux-gnu/libresolv.so.2 | awk '/0x/ && !n++ { print "stub:", $2 }' | tee seen
readelf --debug-dump=frames-interp root/lib/aarch64-linux-gnu/ld-linux-aarch64.so.1 2>/dev/null |
	awk '/FDE/ { rows = ""; found = 0 } /ra|LOC/ { next } / sp\+/ { rows = rows " " $2; if ($0 ~ / c\+8/) found = 1 } /^$/ { if (found) print "resolver, CFA:" rows; found = 0 }' | tee -a seen
grep -q '^stub: f07bbfa9$' seen
grep -qE '^resolver, CFA:( sp\+0)+( sp\+208)+( sp\+0)*$' seen
