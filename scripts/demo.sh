#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# `make demo`: installs what the build needs, builds, records Debian's python3 with the JSON workload
# and shows where its memory went.
#
#   scripts/demo.sh BUILD
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
heapline=$1/heapline
recording=demo.hl
python=/usr/bin/python3

# prepare WHAT COMMAND...: runs a command and shows its output only when it fails.
prepare() {
	local log
	log=$(mktemp "${TMPDIR:-/tmp}/heapline-demo.XXXXXX")
	printf '%s ...' "$1"
	local start=$SECONDS
	if ! "${@:2}" >"$log" 2>&1; then
		printf ' failed:\n'
		cat "$log"
		rm -f "$log"
		exit 1
	fi
	rm -f "$log"
	printf ' done, %d s\n' $((SECONDS - start))
}

prepare 'installing the packages that the build needs' scripts/deps.sh build
prepare 'building heapline' make --no-print-directory BUILD="$1" all

# Shows a command, then runs it.
step() {
	printf '\n$ %s\n' "$*"
	"$@"
}

step "$heapline" record -f -o "$recording" -- "$python" demo/json_workload.py
step "$heapline" top --rows 15 --stack script "$recording"

# suggest WHAT HEAPLINE-ARGUMENTS...
suggest() {
	printf '  %-50s %s\n' "$heapline ${*:2}" "$1"
}

printf '\nThe recording is the directory %s. Ask it more:\n\n' "$recording"
suggest "functions with all that they called" top --sort cum "$recording"
suggest "who allocated most, freed or not" top --value alloc "$recording"
suggest "what was recorded, and what is missing" info "$recording"
suggest "all of it in one page" report -o demo.html "$recording"
suggest "the call tree" tree "$recording"
suggest "every option" help top
printf '\nThen record a program of yours:\n\n  %s record -o app.hl -- COMMAND\n' "$heapline"
