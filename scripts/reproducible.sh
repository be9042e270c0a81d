#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the packages of the last commit twice, in folders of other names, under another clock, time zone, umask, language
# and number of jobs, and compares them byte by byte. Exits with 1 where they differ, and says in what.
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
folder=$(mktemp -d) commit=$(git rev-parse HEAD)
trap 'rm -rf "$folder"' EXIT

build() { # build NAME JOBS ENVIRONMENT...
	echo "building in the folder '$1'"
	env "${@:3}" DEB_BUILD_OPTIONS="parallel=$2 ${OPTIONS:-}" scripts/deb.sh "$folder/$1" "$commit" >"$folder/log" 2>&1 || {
		tail -n 50 "$folder/log"
		exit 1
	}
}

(umask 022 && build one "$(nproc)" TZ=UTC LC_ALL=C.UTF-8)
sleep 2 # a later second, for whatever writes its time down
(umask 077 && build another-folder 1 TZ=Asia/Kathmandu LC_ALL=C HOME=/nonexistent)

same=yes
for package in "$folder"/one/*.deb; do
	name=${package##*/}
	if cmp -s "$package" "$folder/another-folder/$name"; then
		echo "the same: $name $(sha256sum <"$package" | cut -c 1-16)"
		continue
	fi
	same=no
	echo "different: $name"
	if command -v diffoscope >/dev/null; then
		diffoscope "$package" "$folder/another-folder/$name" 2>&1 | head -n 200 || true
	fi
done
[[ $same == yes ]]
