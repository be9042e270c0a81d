#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds Debian packages of a commit, the last one if none is named, in FOLDER, beside its build directory; for another machine
# by Debian's cross compiler, where the libraries of that machine are installed (CONTRIBUTING.md, A release).
#
#   scripts/deb.sh FOLDER [COMMIT [ARCHITECTURE]]
set -eu
folder=$1 commit=${2:-HEAD}
options=(-us -uc -b)
[[ $# -lt 3 ]] || options+=("-a$3" -Pcross,nocheck)
version=$(dpkg-parsechangelog -S Version)
rm -rf "$folder"
mkdir -p "$folder"
git archive --prefix="heapline-$version/" "$commit" | tar -x -C "$folder"
(cd "$folder/heapline-$version" && dpkg-buildpackage "${options[@]}")
ls "$folder"/*.deb
