#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Lays out the root of an image that has heapline, the libraries that it loads, and nothing else: no shell, no package manager.
#
#   deploy/image_root.sh ROOT [HEAPLINE [RECORDER]]
#
# ROOT is a new directory. HEAPLINE is the program (default: that of PATH), RECORDER its libheapline.so.0, which programs in other containers may preload.
# Needs ldd, of the system that the program was built on.
set -eu

root=$1
program=${2:-$(command -v heapline)}
recorder=${3:-}
mkdir "$root"

# put FILE: to the same place below the root, without links on the way.
put() {
	mkdir -p "$root$(dirname "$1")"
	cp -L "$1" "$root$1"
}

# Of files, and of what they load in turn.
libraries_of() {
	ldd "$@" | sed -n 's/^.*[[:space:]]\(\/[^ ]*\) (0x.*$/\1/p' | sort -u
}

# What it opens by itself for some verbs: serve, the stores of fleet and push, and those of other hosts.
find_opened() {
	for name in libmicrohttpd.so.12 libsqlite3.so.0 libcurl.so.4; do
		find /usr/lib /usr/local/lib -name "$name" 2>/dev/null | head -n 1
	done
}

find_verbs() {
	folder=$(dirname "$(readlink -f "$program")")
	find "$folder/heapline-verbs.so" "$folder/../lib" -name heapline-verbs.so 2>/dev/null | head -n 1
}

mkdir -p "$root/usr/bin" "$root/proc" "$root/sys" "$root/dev" "$root/etc" "$root/var/lib/heapline" "$root/var/cache/heapline"
install -d -m 1777 "$root/tmp" "$root/out"
cp -L "$program" "$root/usr/bin/heapline"
# All verbs but 'record'. Beside the program it is found first.
verbs=$(find_verbs)
install -m 644 "$verbs" "$root/usr/bin/heapline-verbs.so"
strip "$root/usr/bin/heapline" "$root/usr/bin/heapline-verbs.so" 2>/dev/null || :
opened=$(find_opened)
# shellcheck disable=SC2086 # paths without spaces
for file in $(libraries_of "$program" "$verbs" $opened) $opened; do
	put "$file"
done
if [ -n "$recorder" ]; then
	folder=$root$(dirname "$(libraries_of "$program" | grep '/libc\.so')")
	cp -L "$recorder" "$folder/libheapline.so.0"
fi
echo 'root:x:0:0:root:/:/' >"$root/etc/passwd"
for file in /etc/ssl/certs/ca-certificates.crt /lib/terminfo/x/xterm /lib/terminfo/x/xterm-256color /lib/terminfo/t/tmux-256color /lib/terminfo/s/screen /lib/terminfo/l/linux; do
	if [ -e "$file" ]; then
		put "$file"
	fi
done
