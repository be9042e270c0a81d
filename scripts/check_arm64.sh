#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds heapline for aarch64 and records programs with known counts there, by qemu-user and Debian's arm64 libraries, and in a
# machine that qemu-system boots. Programs of that machine are run by the kernel (binfmt_misc), in namespaces of their own: nothing
# of this system changes.
#
#   scripts/check_arm64.sh FOLDER     FOLDER: what it builds into, and keeps
#
# Exits with 77, after the reason, where something of it is missing.
set -eu
tree=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
folder=$(realpath "$1")
build=$folder/build root=$folder/root programs=$folder/programs

missing() {
	echo "skipped: $1"
	exit 77
}

# Enters namespaces in which the kernel runs programs of aarch64 by qemu.
enter='mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
printf %s ":heapline-arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v qemu-aarch64):F" \
	>/proc/sys/fs/binfmt_misc/register && exec "$@"'
run() {
	QEMU_LD_PREFIX=$root unshare --user --map-root-user --mount --kill-child -- bash -c "$enter" bash "$@"
}

for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
	command -v $tool >/dev/null || missing "no $tool (Debian: g++-aarch64-linux-gnu, qemu-user)"
done
run true 2>/dev/null || missing "the kernel has no binfmt_misc in user namespaces (Linux 6.7)"
"$tree/scripts/arm64_root.sh" "$root" || missing "the arm64 packages cannot be had"

if [[ ! -e $build/build.ninja ]]; then
	meson setup --cross-file "$root/cross.ini" --cross-file "$tree/scripts/arm64.ini" -Dguests=lua,python,skynet -Dtests=false -Dbench=false -Dlua=disabled \
		-Dbeam=disabled -Dman=disabled -Dbuildtype=plain -Doptimization=1 "$build" "$tree" >"$folder/setup.log"
fi
ninja -C "$build" all src/bpf/walk_test.skel.h >"$folder/build.log" || { tail -n 30 "$folder/build.log"; exit 1; }
mkdir -p "$programs"
# As tests/e2e/meson.build has them; signed return addresses beside plain ones.
compile() { # OUTPUT ARGUMENT...
	aarch64-linux-gnu-gcc --sysroot="$root" -D_GNU_SOURCE -std=gnu11 -O2 -g -fno-builtin -fno-optimize-sibling-calls -o "$programs/$1" "${@:2}" -pthread
}
for name in known_answer ledger peak signals sequence heap_target waiting_calls attach_target streaming stacks trace_heap pod_parts pod_kernel grow_parts oom_ledger leaks; do
	for kind in '' _signed; do
		compile "$name$kind" ${kind:+-mbranch-protection=standard} "$tree/tests/e2e/$name.c"
	done
done
compile heap_target_static "$tree/tests/e2e/heap_target.c" -static
compile pages "$tree"/tests/e2e/{pages,page_scenarios}.c
compile gate.so -shared -fPIC "$tree/tests/e2e/gate.c"
mapfile -t libraries < <(find "$build/src" -name 'lib*.a' ! -name 'libhooks.a' ! -name 'librecorder.a' ! -name 'libpprof_messages.a')
compile_with_libraries() { # OUTPUT SOURCE... [ARGUMENT...]
	compile "$@" -I "$tree/src" -I "$tree/src/arch/aarch64" -I "$build/src/bpf" -Wl,--start-group "${libraries[@]}" -Wl,--end-group \
		-lbpf -lelf -ldw -lz -lzstd -lxxhash -ljansson -lsqlite3 -lcurl -lprotobuf-c -lm
}
for name in walk_trace recorded_stacks; do compile_with_libraries $name "$tree/tests/e2e/$name.c"; done
compile_with_libraries attach_cycles "$tree"/tests/e2e/{attach_cycles,attach_storm,kill_steps}.c -Wl,--wrap={ptrace,pwrite64,sched_setscheduler,syscall}
aarch64-linux-gnu-g++ --sysroot="$root" -O2 -g -fno-builtin -fno-optimize-sibling-calls "$tree/tests/e2e/known_answer_cxx.cc" -o "$programs/known_answer_cxx"
for kind in '' _fixed; do
	aarch64-linux-gnu-gcc --sysroot="$root" -D_GNU_SOURCE -std=gnu11 -O2 -g -fno-builtin -fno-optimize-sibling-calls ${kind:+-fno-pie -no-pie} \
		-I"$tree/include" "$tree/tests/e2e/annotated.c" -o "$programs/annotated$kind"
done
aarch64-linux-gnu-gcc --sysroot="$root" -D_GNU_SOURCE -std=gnu11 -O2 -g -fno-builtin -fno-optimize-sibling-calls -I"$root/usr/include/lua5.4" \
	"$tree/tests/e2e/lua_mixed.c" -o "$programs/lua_mixed" -llua5.4 -pthread
HL_BUILD=$build HL_PROGRAMS=$programs HL_ARM64_ROOT=$root HL_OTHER_HEAPLINE=${2:-} run python3 "$tree/tests/e2e/test_aarch64.py"
# A booted machine; of this one its programs see nothing but the console.
HL_BUILD=$build HL_PROGRAMS=$programs HL_ARM64_ROOT=$root python3 "$tree/tests/e2e/test_aarch64_machine.py" || [[ $? == 77 ]]
