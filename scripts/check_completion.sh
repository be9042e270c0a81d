#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Asks the bash completion what it offers: check_completion.sh HEAPLINE
set -eu
source "$(dirname "$0")/completion.bash"
program=$1

# offers WORDS... EXPECTED: the last of WORDS is being completed; EXPECTED is a word that must come.
offers() {
	local expected=${*: -1}
	COMP_WORDS=("$program" "${@:1:$#-1}")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_heapline
	local offer
	for offer in "${COMPREPLY[@]}"; do
		[[ $offer == "$expected" ]] && return
	done
	echo "completing '${COMP_WORDS[*]}' offers '${COMPREPLY[*]-}', not '$expected'"
	exit 1
}

offers "" version
offers ver version
offers help ver version
offers version --js --json
offers record --mode mem-f mem-fast
offers top --sort c cum
offers version "$program" "$program" # files where there is no option
