#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Cross-builds the packages of the last commit for arm64 in a fresh Debian 12, installs them beside what that has, and runs them by
# qemu-user: programs with known counts, and what autopkgtest runs (debian/tests). It takes longer than `make check` may.
#
#   scripts/check_deb_arm64.sh FOLDER     FOLDER: becomes that Debian, and is used again (scripts/release.sh)
#
# Exits with 77, after the reason, where something of it is missing.
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
inside=--inside-the-release
if [[ $1 != "$inside" ]]; then
	exec scripts/release.sh bookworm "$1" "scripts/check_deb_arm64.sh $inside"
fi
[[ -e /made ]] # as release.sh leaves it: no other system gets packages of another machine

export DEBIAN_FRONTEND=noninteractive
get=(apt-get -qq --yes --no-install-recommends)
dpkg --add-architecture arm64
apt-get -qq update
"${get[@]}" install crossbuild-essential-arm64 lintian python3-jsonschema libexpat1:arm64 libpython3.11-stdlib:arm64 lua5.4:arm64
"${get[@]}" build-dep --host-architecture arm64 -P cross,nocheck .
# What is in no place of its own: that emulator is static, so what a program of arm64 preloads does not concern it; and a Python that
# takes the place of this system's in a test. Compilers get their plain names.
rm -rf /arm64
mkdir -p /arm64/{programs,tools}
ln -s /usr/bin/aarch64-linux-gnu-gcc /arm64/tools/gcc
ln -s /arm64/usr/bin/qemu-aarch64-static /arm64/tools/qemu-aarch64
for package in python3.11-minimal:arm64 qemu-user-static; do
	(cd /arm64 && "${get[@]}" -o APT::Sandbox::User=root download $package && dpkg-deb -x "${package%:*}"_*.deb .)
done
run() {
	PATH=/arm64/tools:$PATH PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig scripts/arm64_run.sh "$@"
}
run true 2>/dev/null || {
	echo "skipped: the kernel has no binfmt_misc in user namespaces (Linux 6.7)"
	exit 77
}

scripts/deb.sh /packages HEAD arm64 >/packages.log 2>&1 || {
	tail -n 50 /packages.log
	exit 1
}
lintian --allow-root --fail-on error /packages/*.changes
"${get[@]}" install --reinstall /packages/*.deb

for kind in "" _signed; do
	aarch64-linux-gnu-gcc -D_GNU_SOURCE -std=gnu11 -O2 -g -fno-builtin -fno-optimize-sibling-calls -pthread \
		${kind:+-mbranch-protection=standard} -o /arm64/programs/known_answer$kind tests/e2e/known_answer.c
done
HL_BUILD=/usr/bin HL_PROGRAMS=/arm64/programs run python3 tests/e2e/test_aarch64.py -k every_entry_point
for test in links lua records; do
	run sh -c 'mount --bind /arm64/usr/bin/python3.11 /usr/bin/python3.11 && exec "$@"' sh debian/tests/$test
	echo "the installed packages: $test ... ok"
done
