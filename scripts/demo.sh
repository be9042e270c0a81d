#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Records Debian's python3 with the JSON workload and shows where its memory went: `make demo`.
#
#   scripts/demo.sh BUILD
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
heapline=$1/heapline
recording=demo.hl
python=/usr/bin/python3

# Shows a command, then runs it.
step() {
	printf '\n$ %s\n' "$*"
	"$@"
}

# PYTHONMALLOC=malloc: each object becomes a call of malloc, so that each can be seen.
export PYTHONMALLOC=malloc
step "$heapline" record -f -o "$recording" -- "$python" demo/json_workload.py
step "$heapline" info "$recording"
step "$heapline" top --rows 15 "$recording"

cat <<END

The recording is the directory $recording. Ask it more:

  $heapline top --sort cum $recording        functions with all that they called
  $heapline top --value alloc $recording     who allocated most, freed or not
  $heapline top --json $recording           the same for programs
  $heapline folded --value alloc $recording  stacks, for flame graph tools
  $heapline help top                       every option

Then record a program of yours:

  $heapline record -o app.hl -- COMMAND
END
