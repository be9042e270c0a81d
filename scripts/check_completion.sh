#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Asks the completions of bash and, where it is installed, of fish what they offer, and has zsh parse its own:
# check_completion.sh HEAPLINE
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
offers check -- ls ls
offers_only check "" "app.hl app.hlpack"
offers_only push --to no notes.txt # a store may be a file
offers_only push --to notes.txt "" "app.hl app.hlpack"
offers push --to notes.txt -- ls ls
offers_only fleet to top
offers_only fleet top --db no notes.txt

for shell in zsh fish; do
	if command -v $shell >/dev/null; then
		$shell -n "$scripts/completion.$shell"
	else
		echo "skipped: completion.$shell is not parsed; $shell is not installed"
	fi
done

# fish_offers LINE EXPECTED: all words that may come, without their meanings.
fish_offers() {
	local offered
	offered=$(PATH=$(dirname "$program"):$PATH HOME=$folder fish --no-config -c "source $scripts/completion.fish
		complete -C '$1'" | cut -f 1 | xargs)
	[[ $offered == "$2" ]] && return
	echo "fish completes '$1' by '$offered', not by '$2'"
	exit 1
}

if command -v fish >/dev/null; then
	fish_offers "heapline ver" version
	fish_offers "heapline version --js" --json
	fish_offers "heapline fleet to" top
	fish_offers "heapline top " "app.hl/ app.hlpack"
	fish_offers "heapline fleet top --db no" notes.txt
fi
