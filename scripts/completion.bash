# SPDX-License-Identifier: BSD-2-Clause
# Completion of heapline's command line for bash; the program itself says what fits.

_heapline() {
	local current=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]:1:COMP_CWORD}") word _
	COMPREPLY=()
	# Bash makes a word of the '=' of --option=word.
	if [[ ${#words[@]} -ge 2 && $current == "=" ]]; then
		current=
		words[-1]=
	elif [[ ${#words[@]} -ge 3 && ${words[-2]} == "=" ]]; then
		words=("${words[@]:0:${#words[@]}-2}" "$current")
	fi
	while IFS=$'\t' read -r word _; do
		case $word in
		:recordings)
			mapfile -t COMPREPLY < <(compgen -f -X '!*.hl' -- "$current"; compgen -f -X '!*.hlpack' -- "$current")
			[[ ${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$current")
			;;
		:files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$current") ;;
		:commands) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -f -- "$current") ;;
		"$current"*) COMPREPLY+=("$word") ;;
		esac
	done < <("${COMP_WORDS[0]}" --complete "${words[@]}" 2>/dev/null)
}

complete -o filenames -F _heapline heapline
