#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds Debian packages of a commit, the last one if none is named, in FOLDER, beside its build directory.
#
#   scripts/deb.sh FOLDER [COMMIT]
set -eu
folder=$1 commit=${2:-HEAD}
version=$(dpkg-parsechangelog -S Version)
rm -rf "$folder"
mkdir -p "$folder"
git archive --prefix="heapline-$version/" "$commit" | tar -x -C "$folder"
(cd "$folder/heapline-$version" && dpkg-buildpackage -us -uc -b)
ls "$folder"/*.deb
