#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# 64-bit DWARF 5 by gcc 12.2 and gas 2.40 (Debian 12): addr2line 2.40, of the same package as gas, finds no line of it ("offset ... greater
# than or equal to .debug_line_str size", "mangled line number section"). It reads 8-byte offsets of names as wrong numbers.
# eu-addr2line 0.188 reads the same file right, and addr2line reads 64-bit DWARF 4 of the same compiler, and 64-bit DWARF 5 of clang.
# The same of gcc 16 and binutils 2.46.
#
# Seen: the function leaf at line 1 of d.c: eu-addr2line "d.c:1", addr2line "??:?"; with -gdwarf-4 both have line 1.
# heapline reads lines by elfutils' library.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for package in elfutils=0.188-2.1 libasm1=0.188-2.1 libdw1=0.188-2.1 libelf1=0.188-2.1 binutils-x86-64-linux-gnu=2.40-2 libbinutils=2.40-2 \
	libctf0=2.40-2 libctf-nobfd0=2.40-2 libgprofng0=2.40-2; do
	apt-get -o APT::Sandbox::User=root download -qq "$package" >/dev/null
done
for file in *.deb; do dpkg -x "$file" root; done
mkdir tools
for tool in as ld nm addr2line; do ln -s "$folder/root/usr/bin/x86_64-linux-gnu-$tool" "tools/$tool"; done
export LD_LIBRARY_PATH=$folder/root/usr/lib/x86_64-linux-gnu
gcc -dumpfullversion | grep -qx 12.2.0

printf 'int leaf(int x) { return x * 3; }\nint main(int c, char **v) { (void)v; return leaf(c); }\n' >d.c
for version in 5 4; do
	gcc -B "$folder/tools/" -gdwarf64 -gdwarf-$version -O0 d.c -o "d$version"
	address=0x$(tools/nm "d$version" | awk '$3 == "leaf" { print $1 }')
	printf 'DWARF %s: addr2line %s, eu-addr2line %s\n' "$version" "$(tools/addr2line -e "d$version" "$address" 2>/dev/null | sed 's,.*/,,')" \
		"$(root/usr/bin/eu-addr2line -e "d$version" "$address" | sed 's,.*/,,')"
done | tee seen
grep -q '^DWARF 5: addr2line ??:?, eu-addr2line d.c:1:' seen
grep -q '^DWARF 4: addr2line d.c:1, eu-addr2line d.c:1:' seen
