#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds heapline for aarch64 and records programs with known counts there, by qemu-user and Debian's arm64 libraries, and in a
# machine that qemu-system boots. The project's own tests run by qemu-user, too, as far as they can (tests/emulated.py).
#
#   scripts/check_arm64.sh FOLDER     FOLDER: what it builds into, and keeps
#
# Exits with 77, after the reason, where something of it is missing.
set -eu
tree=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
folder=$(realpath "$1")
build=$folder/build root=$folder/root
export PATH=$root/emulator:$PATH
programs=$build/tests/e2e

missing() {
	echo "skipped: $1"
	exit 77
}

run() {
	QEMU_LD_PREFIX=$root "$tree/scripts/arm64_run.sh" "$@"
}

for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
	command -v $tool >/dev/null || missing "no $tool (Debian: g++-aarch64-linux-gnu, qemu-user)"
done
run true 2>/dev/null || missing "the kernel has no binfmt_misc in user namespaces (Linux 6.7)"
"$tree/scripts/arm64_root.sh" "$root" || missing "the arm64 packages cannot be had"

if [[ ! -e $programs ]]; then
	rm -rf "$build"
	meson setup --cross-file "$root/cross.ini" --cross-file "$tree/scripts/arm64.ini" -Dguests=java,lua,php,python,ruby,skynet -Dbench=false -Dlua=disabled \
		-Dbeam=disabled -Dman=disabled -Dbuildtype=plain -Doptimization=1 "$build" "$tree" >"$folder/setup.log"
fi
ninja -C "$build" >"$folder/build.log" || { tail -n 30 "$folder/build.log"; exit 1; }
# As tests/e2e/meson.build has them, with signed return addresses; and one that is of this machine alone.
compile() { # OUTPUT ARGUMENT...
	aarch64-linux-gnu-gcc --sysroot="$root" -D_GNU_SOURCE -std=gnu11 -O2 -g -fno-builtin -fno-optimize-sibling-calls -o "$programs/$1" "${@:2}" -pthread
}
for name in known_answer ledger stacks; do compile ${name}_signed -mbranch-protection=standard "$tree/tests/e2e/$name.c"; done
compile streaming "$tree/tests/e2e/streaming.c"
status=0 outcome=ok
"$tree/scripts/check_image.py" "$build/src/recorder/image/libheapline_image.so" || status=1 outcome=FAIL
echo "the image needs neither the loader nor libc ... $outcome"
export HL_ARM64_ROOT=$root
HL_BUILD=$build HL_PROGRAMS=$programs HL_OTHER_HEAPLINE=${2:-} run python3 "$tree/tests/e2e/test_aarch64.py" || status=$?
run python3 "$tree/tests/emulated.py" "$build" || status=$?
# A booted machine; of this one its programs see nothing but the console.
HL_BUILD=$build HL_PROGRAMS=$programs python3 "$tree/tests/e2e/test_aarch64_machine.py" || [[ $? == 77 ]] || status=1
exit $status
