#compdef heapline
# SPDX-License-Identifier: BSD-2-Clause
# Completion of heapline's command line for zsh; the program itself says what fits.

_heapline() {
	local line word meaning
	local -a lines described
	lines=("${(@f)$($words[1] --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	for line in $lines; do
		case $line in
		:recordings) _files -g '*.(hl|hlpack)(-/,.)' || _files ;;
		:files) _files ;;
		:commands) _command_names -e ;;
		*)
			word=${line%%$'\t'*}
			meaning=${line#$word}
			described+=("${word//:/\\:}${meaning/$'\t'/:}")
			;;
		esac
	done
	(( $#described )) && _describe heapline described
}

_heapline "$@"
