# SPDX-License-Identifier: BSD-2-Clause
# Bash completion for heapline. Verbs, options and their words come from heapline's own tables.

_heapline()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
	local program=${COMP_WORDS[0]} verb=${COMP_WORDS[1]} options words

	COMPREPLY=()
	if ((COMP_CWORD == 1)) || [[ $verb == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" --list-verbs 2>/dev/null)" -- "$cur")
		return
	fi
	options=$("$program" "$verb" --list-options 2>/dev/null)
	words=$(sed -n "s/^$prev //p" <<<"$options")
	if [[ $prev == --* && -n $words ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	elif [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(cut -d ' ' -f 1 <<<"$options")" -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}

complete -o filenames -F _heapline heapline
