#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Unpacks Debian's arm64 libraries into a folder, for a build by the cross compiler and for qemu-user. Needs no root and
# leaves the packages of this system alone. Nothing is downloaded that is there already.
#
#   scripts/arm64_root.sh FOLDER
set -eu

root=$(realpath -m "$1")
packages=(libc6-dev libdw-dev libelf-dev libzstd-dev libxxhash-dev libsmartcols-dev libncurses-dev libjansson-dev libiberty-dev
	libprotobuf-c-dev zlib1g-dev libzydis-dev libmicrohttpd-dev libsqlite3-dev libcurl4-openssl-dev libbpf-dev libcmocka-dev
	libstdc++6 libunwind-dev python3.11 libpython3.11-dev lua5.4 liblua5.4-dev luajit ruby3.1 php8.2-cli
	openjdk-17-jre-headless)
stamp=$root/packages
if [[ -e $stamp && $(<"$stamp") == "${packages[*]}" ]]; then
	exit 0
fi
rm -rf "$root"
mkdir -p "$root"/apt/{lists,archives}/partial "$root"/usr/{lib,bin,sbin}
touch "$root/apt/status"
for folder in lib bin sbin; do ln -s "usr/$folder" "$root/$folder"; done
apt=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::Lists=$root/apt/lists"
	-o "Dir::State::status=$root/apt/status" -o "Dir::Cache=$root/apt" -o "Dir::Cache::archives=$root/apt/archives"
	-o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update
apt-get "${apt[@]}" --yes --download-only --no-install-recommends install "${packages[@]}"
for package in "$root"/apt/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
done
rm -r "$root/apt"
# Links to libraries, as from libz.so, go through the root of the file system.
find "$root/usr/lib" -type l -lname '/*' | while read -r link; do
	ln -sf "$root$(readlink "$link")" "$link"
done
printf "[constants]\nroot = '%s'\n" "$root" >"$root/cross.ini"
echo "${packages[*]}" >"$stamp"
