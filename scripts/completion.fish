# SPDX-License-Identifier: BSD-2-Clause
# Completion of heapline's command line for fish; the program itself says what fits.

function __heapline_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] --complete $words[2..-1] 2>/dev/null)
        switch $line
            case :recordings
                set -l paths (__fish_complete_path (commandline -ct))
                string match -r '.*\.hl(?:pack)?/?(?:\t.*)?$' -- $paths; or printf '%s\n' $paths
            case :files
                __fish_complete_path (commandline -ct)
            case :commands
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end

complete -c heapline -f -a '(__heapline_complete)'
