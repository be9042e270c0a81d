# SPDX-License-Identifier: BSD-2-Clause
# What the guests of test_kernels.py and test_aarch64_machine.py trace by BPF: calls of allocators, pages, control groups. With
# $short, an option of the kernel, only what depends on the size of pages.
work=allocate note='counting, by'
for probes in best multi perf; do
	start trace_heap
	trace "stacks $probes" stacks --verbose --max-overhead 100000 --json --probes $probes
	stop
done

# Pages: the growth of Rss is the truth.
rss() { awk "/^Rss:/ { print \$2 / $page_kib }" /proc/$target/smaps_rollup; }
write_pages() {
	rss >before.txt
	echo >&3
	wait_for answers.txt '^done' 1 $target
	rss >after.txt
}
work=write_pages note='watching page faults'
for scenario in anon moved; do
	start pages $scenario
	trace "pgfault $scenario" pgfault --verbose --json
	say "growth $scenario" 0 before.txt after.txt
	stop
done
start pages anon
trace 'page-events' page-events --verbose --json
stop
[ -z "$short" ] || end

work=allocate note='counting, by'
for options in --all '--sample 4096' '--sample 4096 --all' '--older 0.001'; do
	start trace_heap
	trace "stacks $options" stacks --verbose --max-overhead 100000 --json $options
	stop
done

# In a group with a limit, watched from outside the group.
mkdir /sys/fs/cgroup/limited
echo '+memory' >/sys/fs/cgroup/cgroup.subtree_control
start trace_heap
echo $target >/sys/fs/cgroup/limited/cgroup.procs
echo 64M >/sys/fs/cgroup/limited/memory.max
trace 'stacks in a group' stacks --verbose --max-overhead 100000 --json
stop

# All that a group is charged with.
mkdir /sys/fs/cgroup/parts
start sh -c 'echo $$ >/sys/fs/cgroup/parts/cgroup.procs; exec pod_parts /tmp -'
echo $target >target.txt
run pod heapline pod --cgroup /sys/fs/cgroup/parts --json
say 'pod processes' 0 target.txt answers.txt
run 'pod of a process' heapline pod -p $target
(umask 077; echo 0123456789abcdef >token)
heapline serve --listen 127.0.0.1:7373 --token-file token --cgroup /parts /tmp 2>served.txt &
server=$!
wait_for served.txt serving 1 $server
run metrics wget -qO- --header 'Authorization: Bearer 0123456789abcdef' http://127.0.0.1:7373/metrics
kill $server
stop

# What the kernel keeps for a program, and what is on swap.
[ ! -e /hl/brd.ko ] || insmod /hl/brd.ko rd_nr=1 rd_size=32768
[ ! -e /dev/ram0 ] || { mkswap /dev/ram0 && swapon /dev/ram0; }
echo 4 >/proc/sys/vm/nr_hugepages
mkdir /sys/fs/cgroup/kept
start sh -c 'echo $$ >/sys/fs/cgroup/kept/cgroup.procs; exec pod_kernel'
run 'pod kept' heapline pod --cgroup /sys/fs/cgroup/kept --json
run swaps cat /proc/swaps
run 'pod kept quick' heapline pod --quick --cgroup /sys/fs/cgroup/kept --json
say 'kept program' $target answers.txt /sys/fs/cgroup/kept/memory.stat
stop
[ ! -e /dev/ram0 ] || swapoff /dev/ram0
echo 0 >/proc/sys/vm/nr_hugepages

# The black box, of a program that fills its group.
mkdir /sys/fs/cgroup/oom
echo 48M >/sys/fs/cgroup/oom/memory.max
heapline watch --cgroup /sys/fs/cgroup/oom --dir /tmp/watch >watch.txt 2>&1 &
watch=$!
wait_for watch.txt watching 1 $watch
head -c 8 /dev/zero >ledger
sh -c 'echo $$ >/sys/fs/cgroup/oom/cgroup.procs; exec oom_ledger /tmp/ledger 1024 200 30000'
wait_for watch.txt 'has killed process' 1 $watch
od -An -td8 ledger >steps.txt
say 'oom ledger' 0 steps.txt watch.txt
for i in $(seq 300); do
	ls /tmp/watch | grep -q partial || break
	sleep 0.2
done
run 'watch last' heapline watch last --dir /tmp/watch --json
kill $watch
wait $watch

# What made it grow.
mkdir /sys/fs/cgroup/grows
grow() {
	echo >&3
	wait_for answers.txt '^done' 1 $target
}
work=grow note='following'
start sh -c 'echo $$ >/sys/fs/cgroup/grows/cgroup.procs; exec grow_parts -'
trace 'growth of a group' pod --growth 3600 --json --verbose
stop
