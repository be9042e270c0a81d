#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Asks the bash completion what it offers, and has zsh and fish, where they are installed, parse
# theirs: check_completion.sh HEAPLINE
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)
source "$scripts/completion.bash"
program=$(realpath "$1")

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cd "$folder"
mkdir app.hl other
touch app.hlpack notes.txt

# completes WORDS... : the last of WORDS is being completed.
completes() {
	COMP_WORDS=("$program" "$@")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_heapline
}

# offers WORDS... EXPECTED: a word that must come.
offers() {
	local expected=${*: -1} offer
	completes "${@:1:$#-1}"
	for offer in "${COMPREPLY[@]}"; do
		[[ $offer == "$expected" ]] && return
	done
	echo "completing '${COMP_WORDS[*]}' offers '${COMPREPLY[*]-}', not '$expected'"
	exit 1
}

# offers_only WORDS... EXPECTED: all words that may come.
offers_only() {
	completes "${@:1:$#-1}"
	[[ ${COMPREPLY[*]-} == "${*: -1}" ]] && return
	echo "completing '${COMP_WORDS[*]}' offers '${COMPREPLY[*]-}', not '${*: -1}' alone"
	exit 1
}

offers "" version
offers_only ver version
offers_only help ver version
offers_only version --js --json
offers_only record --mode mem-f mem-fast
offers_only record --mode = log- "log-record log-fast"
offers top --sort c cum
offers heap -p $$ $$
offers stacks --comm ba bash
offers_only ctl st status
offers_only top "" "app.hl app.hlpack"
offers_only top --json no notes.txt # no recording has such a name
offers_only top -o no notes.txt
offers record ls ls

for shell in zsh fish; do
	if command -v $shell >/dev/null; then
		$shell -n "$scripts/completion.$shell"
	else
		echo "skipped: completion.$shell is not parsed; $shell is not installed"
	fi
done
