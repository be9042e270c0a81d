# SPDX-License-Identifier: BSD-2-Clause
# What the first processes of booted machines share: kernel_guest.sh and aarch64_guest.sh. Mounts what Linux has, and defines
# commands whose outcome goes to the serial port $port:
#	@@@ NAME STATUS
#	its standard output, then its standard error, after a line "@@@"
# and @@@end when all is done.
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin:/hl HOME=/tmp HEAPLINE_SYMBOL_CACHE=off
mount -t proc p /proc
mount -t sysfs s /sys
mount -t devtmpfs d /dev
mount -t tmpfs t /tmp
mount -t tracefs t /sys/kernel/tracing
mount -t securityfs s /sys/kernel/security
mount -t cgroup2 -o memory_hugetlb_accounting c /sys/fs/cgroup || mount -t cgroup2 c /sys/fs/cgroup # before 6.6
ip link set lo up
page_kib=$(awk '/^KernelPageSize/ { print $2; exit }' /proc/self/smaps)
cd /tmp
stty -F $port raw -echo
exec 8>$port

say() { # NAME STATUS [OUTPUT [ERRORS]]
	{ echo "@@@ $1 $2"; [ -z "$3" ] || cat "$3"; echo "@@@"; [ -z "$4" ] || cat "$4"; } >&8
}

run() { # NAME COMMAND...
	name=$1; shift
	"$@" >out.txt 2>err.txt </dev/null
	say "$name" $? out.txt err.txt
}

wait_for() { # FILE PATTERN COUNT PID: until as many lines match, or the process has ended
	for i in $(seq 600); do
		found=$(grep -c "$2" "$1") # nothing where the file is not there yet
		[ "${found:-0}" -lt "$3" ] || return 0
		kill -0 "$4" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}

start() { # PROGRAM...: listens to descriptor 3, answers in answers.txt; its number is $target
	rm -f commands answers.txt
	mkfifo commands
	: >answers.txt
	"$@" <commands >answers.txt &
	target=$!
	exec 3>commands
	told=0
	[ "${1#heap_target}" != "$1" ] || wait_for answers.txt '^ready' 1 $target
}

tell() {
	echo "$*" >&3
	told=$((told + 1))
	wait_for answers.txt '^ok' $told $target
}

stop() {
	kill $target
	exec 3>&-
	wait $target
}

# What is known: site_a keeps 750 blocks of 100 bytes, site_b 500 of 64, site_c one in 64 of many.
allocate() {
	tell malloc site_a 1000 100
	tell calloc site_b 500 64
	tell free site_a 250
	tell churn site_c 300 40
}

trace() { # NAME COMMAND...: while the program allocates
	name=$1; shift
	: >trace.txt # which has the note of the trace before
	heapline "$@" -p $target >trace.json 2>trace.txt &
	tracer=$!
	: >verified.txt
	if wait_for trace.txt "$note" 1 $tracer; then
		sed -n 's/^verified_insns:/verified/p' /proc/$tracer/fdinfo/* >verified.txt
		eval "$work"
		kill -TERM $tracer
	fi
	wait $tracer
	status=$?
	cat verified.txt >>trace.txt
	say "$name" $status trace.json trace.txt
}

end() {
	echo @@@end >&8
	poweroff -f
}
