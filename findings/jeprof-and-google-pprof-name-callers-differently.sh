#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# jeprof (jemalloc 5.3.0) and google-pprof (gperftools 2.10), both of Debian 12, descend from one program and both read
# symbolized heap files ("--- symbol", names, "---", a heap file), but look up the addresses of callers differently:
# google-pprof takes an address of a stack as it is, jeprof takes the address before it, because the address is a
# return address. So a file that names its own stacks has a nameless caller in one of the two, whichever it writes.
# The section line "--- heap", which 'jeprof --raw' writes after the names, is refused by google-pprof.
#
# Seen: a stack "0x401001 0x401013" with names for 0x401001 (leaf) and 0x401013 (main): google-pprof has main,
# jeprof has 0x0000000000401012; with a name for 0x401012 it is the other way round.
# heapline looks up both (docs/formats-import.md).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in google-perftools=2.10-1 libjemalloc-dev=5.3.0-1; do
	apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null
done
for file in *.deb; do dpkg -x "$file" root; done

write() { # NAME ADDRESS-OF-MAIN [SECTION]
	printf -- '--- symbol\nbinary=app\n0x401001 leaf\n0x%s main\n---\n%s' "$2" "${3:-}" >"$1"
	printf 'heap profile: 2: 4194304 [2: 4194304] @ heapprofile\n' >>"$1"
	printf ' 2: 4194304 [2: 4194304] @ 0x401001 0x401013\n' >>"$1"
}
write exact 401013
write before 401012
write section 401013 $'--- heap\n'

names() { "$folder/root/usr/bin/$1" --text "$2" 2>&1 | awk '$NF !~ /^[0-9.]*%?$/ { print $NF }' | tr '\n' ' '; }
for file in exact before section; do
	for tool in google-pprof jeprof; do
		printf '%-8s %-13s %s\n' "$file" "$tool" "$(names "$tool" "$file")"
	done
done | tee seen
grep -q '^exact *google-pprof .*main' seen
grep -q '^exact *jeprof .*0x0*401012' seen
grep -q '^before *google-pprof .*0x0*401013' seen
grep -q '^before *jeprof .*main' seen
grep -q '^section *google-pprof .*symbols\.' seen
grep -q '^section *jeprof .*leaf' seen
