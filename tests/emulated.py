# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tests of a build for aarch64 by qemu-user, where the kernel runs its programs by that; see scripts/check_arm64.sh.

    emulated.py BUILD [NAME...]

Each test of meson's is run, named by its program or script, but those of NOT_HERE: these are said to be skipped, with the reason.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

# By kind: why tests cannot run so, and which: programs, scripts, or single tests of a script (SCRIPT/CLASS.TEST, see harness.py). The
# booted machine has its own test (test_aarch64_machine.py).
NOT_HERE = {
    "qemu-user has no ptrace, no seccomp, and other processes' memory is not as it says": """
        test_remote_blocked test_seccomp test_entries test_hook_rules test_room test_heap_walk test_connect
        test_attach test_attach_children test_attach_cycles test_attach_filters test_attach_late test_attach_rules test_attach_targets
        test_attach_ways test_preloaded test_ctl test_live test_audit test_image_targets test_advice test_budget test_chains test_lua_ages
        test_heap test_heap_views test_holders test_holders_tables test_jemalloc_heap test_leaks test_leaks_tables test_mimalloc_heap
        test_musl test_tcmalloc_heap test_allocator_matrix test_resident test_resident_parts test_process test_pagemap test_page_snapshot
        test_python_arenas test_python_types test_ruby_pages test_php_requests test_why test_process_names test_services test_remote
        test_line_reports test_servers test_mcp test_scripts test_jit_names test_doctor test_capabilities test_tags test_log_faults test_owners""",
    "qemu-user has no BPF": """
        test_walker test_walker_targets test_target test_stack_tree test_allocators test_bpf_heap test_image
        test_bpf_stacks test_traces test_pages test_watch test_pod test_group_metrics test_growth test_kernels test_privilege""",
    "qemu-user has no ptrace, by which static programs are recorded, processes joined and programs stepped": """
        test_lifecycles/*.test_children_that_a_handler_forks_within*
        test_annotations/*.test_recorded_from_the_start test_annotations/*.test_joined_and_left test_annotations/*.test_marks_and_modes
        test_annotations/*.test_stripped test_threads/Mappings.*
        test_families/Attached.* test_plumbing""",
    "qemu-user knows no seccomp filters of the program": """
        test_execs/*.test_a_filter_that*""",
    "qemu-user runs vfork() as fork(), so a child tells its parent nothing": """
        test_execs/*.test_a_call_of_exec_that_fails* test_execs/*.test_static_children*""",
    "/proc shows the emulator where a process has its program and its command line": """
        test_execs/*.test_processes_are_named_by_the_titles* test_execs/*.test_a_program_that_goes_on_behind_the_hooks*""",
    "the emulator takes descriptors, room and memory itself, or is what is executed by a descriptor": """
        test_lifecycles/*.test_children_of_a_program_that_may* test_lifecycles/*.test_programs_that_are_execed_with_one*
        test_execs/*.test_an_environment_that_has_no_room* test_execs/*.test_a_program_is_recorded_however_it_replaces*
        test_sizes/MappingsAmongSizes.*""",
    "the namespace of the tests has one user": """
        test_lifecycles/*another_user*""",
    "libasan of that machine is not among the libraries": """
        test_execs/*empty_socket*""",
    "qemu-user's clock counts microseconds, and within one the events of threads have no order": """
        test_ring_order test_drain litmus test_log_order/*.test_a_spike*""",
    "the test is of x86-64's instructions, or of functions that keep no frame pointer there": """
        test_instructions test_cfi test_annotations/*.test_without_a_recorder* test_stacks/*.test_code_without_any_rule*""",
    "Rust and clang compile for this machine": """
        test_names/*.test_functions_of_rust* test_names/*.test_recursive_and_inlined*""",
    "the test builds or runs programs of this system, which are of another machine": """
        test_symbols test_symbols_cache test_elf test_graph run
        test_real_programs test_real_servers test_lua_hosts test_luajit test_ruby test_php test_python_objects
        test_beam test_builds test_refusals test_unwind_compare test_check_cases test_check test_module_files test_nginx test_chart
        test_tutorials test_terminal test_units test_push test_serve test_sandboxes test_filters test_mappings
        test_totals check_deb check_make_release test_python test_lua test_output_files
        test_aarch64 test_aarch64_machine""",
    "the emulator's own threads, signals and mappings are seen beside the program's": """
        test_families/*.test_a_heap_that_nobody* test_families/*.test_an_allocator_within* test_families/*.test_functions_of_an_allocator*
        test_faults/[!O]* test_faults/Over* test_threads/AThousandAtOnce.*
        test_kill/*killed*""",
    "it is slow under emulation, and has nothing of the machine in it": """
        test_sizes/RandomLedgerBySize.*
        test_log.py test_export.py test_import
        test_import_pprof test_events test_events_reports
        test_node test_event test_models""",
}

def stems(test):
    """What a test is called: its script, with and without .py, or its program."""
    return {name for word in test["cmd"] for name in (Path(word).stem, Path(word).name)}


def reason_of(test):
    return next((reason for reason, names in NOT_HERE.items() if stems(test) & set(names.split())), None)


def main():
    build, *wanted = sys.argv[1:]
    said = subprocess.run(["meson", "introspect", build, "--tests"], check=True, stdout=subprocess.PIPE, text=True)
    tests = [test for test in json.loads(said.stdout) if not {suite.split(":")[-1] for suite in test["suite"]} & {"tree", "fuzz", "browser"}
             and (not wanted or stems(test) & set(wanted))]
    # Recorded interpreters and compilers are those of that machine.
    root = os.environ["HL_ARM64_ROOT"]
    environment = dict(os.environ, PATH=f"{root}/tools:{root}/usr/bin:{os.environ['PATH']}",
                       HL_NOT_HERE=json.dumps({name: reason for reason, names in NOT_HERE.items() for name in names.split() if "/" in name}))
    chosen = []
    for test in tests:
        reason = reason_of(test)
        if reason and not wanted:
            print(f"{test['name']} ... skipped '{reason}'")
        else:
            chosen.append(test["name"])
    if not chosen:
        sys.exit(f"no test has a name of these: {' '.join(wanted)}")
    log = Path(build) / "meson-logs" / "testlog.json"
    log.unlink(missing_ok=True)
    subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "-t", "2", "--num-processes", str(min(os.cpu_count() or 2, 8)), *chosen],
                   env=environment, check=False)
    records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    failed = len(chosen) - len(records)
    for record in records:
        output = record.get("stdout", "") + "\n" + record.get("stderr", "")
        good = record["result"] in ("OK", "SKIP", "EXPECTEDFAIL")
        failed += not good
        print(re.sub(r"^\s*$\n", "", output, flags=re.M) if not good else
              "\n".join(line for line in output.splitlines() if re.match(r"\[ +OK \]|ok \d|.* \.\.\. ", line)))
        print(f"{record['name']}: {record['duration']:.1f} s ... {'ok' if good else 'FAIL'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
