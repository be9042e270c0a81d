#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
# The first process of a machine that test_kernels.py boots. Runs heapline on programs whose answers
# are known; see guest.sh.
port=/dev/ttyS1
. /hl/guest.sh

heapline version >version.txt 2>&1
uname -r >release.txt
say release 0 release.txt version.txt
run doctor heapline doctor --json

. /hl/guest_traces.sh

# The heap as it is.
start trace_heap
doctor_target=$target
run 'doctor target' heapline doctor -p $target --json
attach() { # RECORDING WORK
	heapline attach -p $target -o $1 >attach.txt 2>&1 &
	tracer=$!
	for i in $(seq 100); do
		heapline ctl -p $target status >/dev/null 2>&1 && break
		sleep 0.1
	done
	$2
	kill -INT $tracer
	kill -TERM $tracer
	wait $tracer
	say attach $? attach.txt
}
attach at.hl allocate
run top heapline top --json at.hl
stop

# In a group that the program fills: what it needs alone, and 8 MiB.
mkdir /sys/fs/cgroup/short
keep_blocks() {
	echo >&3
	wait_for answers.txt '^kept' 1 $target
}
for limit in max 8388608; do
	[ $limit = max ] || limit=$((limit + $(cat /sys/fs/cgroup/short/memory.peak)))
	echo $limit >/sys/fs/cgroup/short/memory.max
	start sh -c 'echo $$ >/sys/fs/cgroup/short/cgroup.procs; exec blocks 300000 96'
	[ $limit = max ] || attach short.hl keep_blocks
	[ $limit != max ] || keep_blocks
	stop
done
say 'blocks kept' 0 answers.txt
run 'blocks found' heapline folded --unit bytes short.hl
run 'blocks short' heapline info --json short.hl

start heap_target 2 500
echo report >&3
wait_for answers.txt '^end' 1 $target
run heap heapline heap -p $target --stop --json
say mallinfo 0 answers.txt
stop

start leaks blocks list
run leaks heapline leaks -p $target --json
say planted 0 answers.txt
stop

# Yama: who is not root may look at no process that is not its child, nor root without the capability.
start trace_heap
for scope in 1 2; do
	echo $scope >/proc/sys/kernel/yama/ptrace_scope
	run "scope $scope heap" heapline heap -p $target --json
	run "scope $scope leaks" heapline leaks -p $target --json
done
work=allocate note='counting, by'
trace 'scope 2 stacks' stacks --verbose --max-overhead 100000 --json
stop

# As another user, who has no rights but those that Yama leaves.
chmod 777 /tmp
echo 1 >/proc/sys/kernel/yama/ptrace_scope
as_user="/hl/setpriv --reuid 65534 --regid 65534 --clear-groups"
$as_user sleep 1000 &
user=$!
sleep 0.3
run 'scope 1 user heap' $as_user heapline heap -p $user --json
run 'scope 1 user attach' $as_user heapline attach -p $user -d 0.1 -f -o user.hl
run 'scope 1 user stacks' $as_user heapline stacks -p $user 0.1
run 'scope 1 user doctor' $as_user heapline doctor -p $user --json
kill $user
wait $user
echo 0 >/proc/sys/kernel/yama/ptrace_scope

# Lockdown, which only rises.
for level in integrity confidentiality; do
	echo $level >/sys/kernel/security/lockdown
	run "lockdown $level" cat /sys/kernel/security/lockdown
	start trace_heap
	work=allocate note='counting, by'
	trace "$level stacks" stacks --verbose --max-overhead 100000 --json
	run "$level doctor" heapline doctor -p $target --json
	run "$level heap" heapline heap -p $target --json
	stop
done

end
