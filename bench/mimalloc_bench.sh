#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the programs of mimalloc-bench that `make bench` can run:
#
#   git clone https://github.com/daanx/mimalloc-bench
#   bench/mimalloc_bench.sh mimalloc-bench /tmp/mimalloc-programs
#   MIMALLOC_BENCH=/tmp/mimalloc-programs make bench ONLY=mimalloc
set -eu

if [[ $# -ne 2 || ! -d $1/bench ]]; then
	echo "usage: mimalloc_bench.sh CHECKOUT DIRECTORY" >&2
	exit 2
fi
sources=$(readlink -f "$1")/bench
mkdir -p "$2"

# build NAME SOURCE... [OPTION...]: all as old C or new C++, and with whatever they warn of
build() {
	local name=$1 compiler=(gcc)
	shift
	[[ $* != *.cpp* ]] || compiler=(g++ -std=c++17)
	[[ $name != cfrac && $name != espresso ]] || compiler+=(-std=gnu89)
	(cd "$sources" && "${compiler[@]}" -O3 -DNDEBUG -w "$@" -o "$out/$name" -lpthread -lm)
}

out=$(readlink -f "$2")
build cfrac -DNOMEMOPT=1 $(cd "$sources" && ls cfrac/*.c | grep -v /pfactor.c)
build espresso $(cd "$sources" && echo espresso/*.c)
build larson larson/larson.cpp -DCPP=1
build xmalloc-test xmalloc-test/xmalloc-test.c
build rptest -Irptest rptest/rptest.c rptest/thread.c rptest/timer.c -fpermissive
build glibc-thread glibc-bench/bench-malloc-thread.c
build mstress mstress/mstress.c
build alloc-test alloc-test/test_common.cpp alloc-test/allocator_tester.cpp -DBENCH=4
cp "$sources/espresso/largest.espresso" "$out/"
echo "built in $out"
