# SPDX-License-Identifier: BSD-2-Clause
# Completion of heapline's command line for bash; asks the program for its verbs and options.

_heapline() {
	local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]}
	local verb=${COMP_WORDS[1]-} option words
	COMPREPLY=()
	if [[ $COMP_CWORD -eq 1 ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --list-verbs 2>/dev/null)" -- "$word")
		return
	fi
	if [[ $verb == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --list-verbs 2>/dev/null)" -- "$word")
		return
	fi
	# A line of the list: an option, then the words that it takes, if those are fixed.
	while read -r option words; do
		if [[ $option == "${COMP_WORDS[COMP_CWORD - 1]}" && -n $words ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
			return
		fi
		[[ $word == -* && $option == "$word"* ]] && COMPREPLY+=("$option")
	done < <("$program" "$verb" --list-options 2>/dev/null)
	[[ $word == -* ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

complete -o filenames -F _heapline heapline
