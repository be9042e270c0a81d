#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
# The first process of a machine that test_aarch64_machine.py boots. Runs heapline on programs whose answers are known; see
# guest.sh.
port=/dev/ttyAMA0
. /hl/guest.sh
# Else a thread's stack that lies well has a huge page, and a program more than it has touched.
echo never >/sys/kernel/mm/transparent_hugepage/enabled

run release uname -r
echo $page_kib >pages.txt
say pages 0 pages.txt
run record heapline record -o known.hl -- known_answer
run top heapline top --json --plumbing --value alloc --rows 0 known.hl

# Programs that are killed at any moment, and one whose children are recorded, too.
for i in $(seq ${kills:-12}); do
	rm -rf killed.hl churned
	truncate -s 4096 churned
	mode=log-fast
	[ $((i % 2)) = 0 ] || mode=mem-fast
	heapline record -q -f -o killed.hl --mode $mode -- churn churned >err.txt 2>&1 &
	recorder=$!
	until target=$(od -A n -t u4 -N 4 churned | tr -d ' ') && [ "$target" != 0 ]; do
		kill -0 $recorder || break
		sleep 0.01
	done
	usleep $((RANDOM * 4))
	kill -KILL $target
	wait $recorder
	said=$?
	base64 churned >out.txt
	say "killed $i" $said out.txt err.txt
	for value in alloc inuse; do
		run "$value of killed $i" heapline top --json --plumbing --value $value --rows 0 killed.hl
	done
done
rm -rf killed.hl
echo storm 20 >storm
run family sh -c 'heapline record -q -o family.hl -- forking <storm'
run 'info of family' heapline info --json family.hl
run 'top of family' heapline top --json --plumbing --value alloc --rows 0 family.hl

# A program is entered and left: its counts are the recorder's, and its code, mappings and descriptors stay as they were.
run cycles attach_cycles 200 2 4 seconds:${cycles_s:-40}
run 'cycles of all' attach_cycles 200 2 4 seconds:${cycles_s:-20} threads forks signals libraries
start attach_target ledger 3
cp ledger before
run attach heapline attach -o joined.hl -d 1 -p $target
cat before ledger | base64 >both.txt
say ledgers 0 both.txt
run 'info of attach' heapline info --json joined.hl
exec 3>&-
wait $target
say 'attached program' $?
[ -z "$short" ] || . /hl/guest_traces.sh # which ends

# Heaps of running programs, and of those that the kernel wrote to a core file.
ulimit -c unlimited
echo core >/proc/sys/kernel/core_pattern
crash() {
	rm -f core
	kill -ABRT $target
	wait $target
	exec 3>&-
}
for program in heap_target heap_target_static; do
	start $program compact 3 3000
	echo report >&3
	wait_for answers.txt '^end' 1 $target
	run "heap of $program" heapline heap -p $target --json
	run "heap --stop of $program" heapline heap -p $target --stop --json
	run "carriers of $program" heapline carriers -p $target --json
	run "pins of $program" heapline pins -p $target --json
	say "mallinfo of $program" 0 answers.txt
	crash
	run "heap --core of $program" heapline heap --core core --json
done

for kinds in blocks mapped list tree ring rings inner ended arenas 'kept register epoll' \
	'kept blocks mapped register list tree ring rings inner ended arenas'; do
	start leaks $kinds
	run "leaks $kinds" heapline leaks -p $target --json
	run "leaks --stop $kinds" heapline leaks -p $target --stop --json
	say "planted $kinds" 0 answers.txt
	[ "$kinds" = "${kinds#kept b}" ] || {
		run holders heapline holders -p $target --json
		crash
		run 'leaks --core' heapline leaks --core core --json
		run 'holders --core' heapline holders --core core --json
	}
	[ "$kinds" != "${kinds#kept b}" ] || stop
done

# Debian's jemalloc for this machine has pages of 64 KiB.
start env LD_PRELOAD=libjemalloc.so.2 slab_blocks 3 8000 300 1
run 'heap of jemalloc' heapline heap -p $target --json
run 'carriers of jemalloc' heapline carriers -p $target --json
run 'leaks of jemalloc' heapline leaks -p $target --json
say 'figures of jemalloc' 0 answers.txt
stop

# No system call of the program is interrupted, whatever its seccomp filter does of restart_syscall(2).
asleep() { # all threads of the target; those that wait briefly never are
	for i in $(seq 600); do
		case $filter in *brief) break ;; esac
		grep -h ^State /proc/$target/task/*/status | grep -qv sleeping || break
		sleep 0.1
	done
}
look() { # by $verb; on a busy machine a thread may stop too late, or be late to leave
	for try in 1 2 3; do
		heapline $verb -p $target >out.txt 2>err.txt && return
		status=$?
		grep -q "temporarily unavailable\|try again\|a later 'heapline attach' takes it out" err.txt || break
	done
	return $status
}
for filter in '' kill fail 'kill brief'; do
	start waiting_calls $filter
	said=0
	for i in $(seq ${stops:-2}); do
		for verb in 'heap --stop' leaks 'attach -q -f -d 0.1 -o waits.hl'; do
			asleep
			look || { said=$?; break 2; }
		done
	done
	exec 3>&-
	wait $target
	echo "calls $?" >>answers.txt
	say "waits $filter" $said answers.txt err.txt
done

# Scripts have the same lines whether they are recorded from their beginning or entered; services have the blocks that their host counts.
join() { # RECORDING: enters $target, and records by $attached; on a busy machine a thread may stop too late
	for try in 1 2 3; do
		: >audit
		HEAPLINE_AUDIT=audit heapline attach -q -f -o $1 -p $target >out.txt 2>err.txt &
		attached=$!
		wait_for audit 'act=attach result="done"' 1 $attached && return
	done
	return 1
}
leave() { # NAME
	heapline ctl -p $target detach >ctl.txt 2>&1
	wait $attached
	say "joined $1" $? out.txt err.txt
	exec 3>&-
	wait $target
	say "left $1" $? answers.txt
}
lines() { # RECORDING
	heapline export --format pprof --value alloc --stack script -f -o lines.pb.gz $1 && base64 lines.pb.gz
}
printf 'go\nend\n' >go
for interpreter in lua5.1 lua5.2 lua5.3 lua5.4 'php8.2 -n' 'ruby3.1 --disable=gems' 'python3.11 -IS'; do
	program=${interpreter%% *}
	script=/hl/$program.script
	heapline record -q -f -o whole.hl -- $interpreter $script <go >out.txt 2>err.txt
	say "recorded $program" $? out.txt err.txt
	start $interpreter $script
	join joined.hl && tell go
	leave $program
	run "lines of recorded $program" lines whole.hl
	run "lines of joined $program" lines joined.hl
done
start lua_services /hl/lua_services.lua
ask() { # COMMAND COUNT
	echo $1 >&3
	wait_for answers.txt '^done' $2 $target
}
ask 'round 20' 1
ask ledger 2
join joined.hl
ask 'round 200' 3
ask ledger 4
leave services
run 'blocks of services' heapline top --by service --value alloc --rows 0 --json joined.hl
rm -rf whole.hl joined.hl

# A system call would end the streaming mode of SME, so another thread makes those of attach.
for beside in '' beside; do
	start streaming 10 $beside
	run "streaming $beside" heapline attach -q -o streamed.hl -d 0.5 -p $target
	wait $target
	say "streamed $beside" $?
	exec 3>&-
done
# Stacks that BPF programs find, beside those of the recorder in the same calls.
export HEAPLINE_TEST_GATE=/tmp/gate
mkfifo gate.at gate.go walk.in
for scenario in coroutines longjmp unusual-frames interrupted; do
	for kind in '' _signed; do
		LD_PRELOAD=/hl/gate.so heapline record -q -f -o whole.hl -- stacks$kind $scenario &
		recorder=$!
		head -c 1 gate.at >/dev/null
		target=$(cat /proc/$recorder/task/*/children | tr -d " ")
		library=$(sed -n 's/^[^/]*\(\/.*libheapline\.so.*\)/\1/p' /proc/$target/maps | head -n 1)
		walk_trace $target $library malloc calloc realloc reallocarray posix_memalign aligned_alloc memalign <walk.in >walked.txt 2>walk.txt &
		walker=$!
		exec 3>walk.in
		wait_for walked.txt '^ready' 1 $walker
		heapline ctl -p $target snapshot before.hl >/dev/null 2>&1
		echo >gate.go
		head -c 1 gate.at >/dev/null
		heapline ctl -p $target snapshot after.hl >/dev/null 2>&1
		exec 3>&-
		wait $walker
		say "walked $scenario$kind" $? walked.txt walk.txt
		run "recorded before $scenario$kind" recorded_stacks before.hl
		run "recorded after $scenario$kind" recorded_stacks after.hl
		echo >gate.go
		wait $recorder
		rm -rf whole.hl before.hl after.hl
	done
done

# Stacks under signals, exceptions and coroutines, beside those of libunwind.
export HL_COMPARE_OUT=compared HL_COMPARE_EVERY=2
for program in 'coroutines 500' 'cxx_throw 1'; do
	run "ran $program" env LD_PRELOAD=/hl/libunwind_compare.so $program
	cat compared.* >out.txt
	say "compared $program" 0 out.txt
	rm -f compared.*
done

# Two threads on structures without a lock, each on a processor of its own.
run litmus litmus 100000

. /hl/guest_traces.sh

end
