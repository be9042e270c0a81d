#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Makes the packages of Debian and uses what is in them. 77: they cannot be made here.
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."

skip() {
	echo "skipped: $*"
	exit 77
}

for tool in dh dpkg-buildpackage lintian; do
	command -v "$tool" >/dev/null || skip "'$tool' is not installed"
done
git rev-parse --verify -q HEAD >/dev/null || skip "packages are made of a commit, and this is not a checkout of git"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Without optimization, in a third of the time
DEB_BUILD_OPTIONS=noopt scripts/deb.sh "$folder/made" >"$folder/log" 2>&1 || {
	tail -n 50 "$folder/log"
	exit 1
}
cd "$folder/made"
lintian --allow-root --fail-on error ./*.changes

for package in heapline libheapline0 libheapline-dev lua-heapline python3-heapline; do
	dpkg-deb -x "$package"_*.deb "$folder/root"
done
usr=$folder/root/usr
"$usr/bin/heapline" record -q -o "$folder/r.hl" -- /bin/sh -c true
"$usr/bin/heapline" info "$folder/r.hl" >/dev/null
for file in bin/heapline include/heapline/heapline.h include/heapline/testing.h lib/python3/dist-packages/pytest_heapline.py share/man/man1/heapline-record.1.gz share/man/man3/heapline.h.3.gz \
	lib/x86_64-linux-gnu/pkgconfig/heapline.pc lib/x86_64-linux-gnu/lua/5.4/heapline.so; do
	[[ -e $usr/$file || -L $usr/$file ]] || { echo "no $file in the packages"; exit 1; }
done
for verb in serve push; do
	unit=$(find "$folder/root" -name heapline-$verb.service)
	grep -q "^ExecStart=/usr/bin/heapline $verb" "$unit"
	if command -v systemd-analyze >/dev/null; then
		sed "s|^ExecStart=/usr/bin|ExecStart=$usr/bin|" "$unit" >"$folder/heapline-$verb.service"
		systemd-analyze verify --man=no "$folder/heapline-$verb.service"
	fi
done
