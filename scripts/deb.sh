#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds Debian packages of the last commit in FOLDER, beside its build directory.
#
#   scripts/deb.sh FOLDER
set -eu
folder=$1
version=$(dpkg-parsechangelog -S Version)
rm -rf "$folder"
mkdir -p "$folder"
git archive --prefix="heapline-$version/" HEAD | tar -x -C "$folder"
(cd "$folder/heapline-$version" && dpkg-buildpackage -us -uc -b)
ls "$folder"/*.deb
