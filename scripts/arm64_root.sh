#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Unpacks Debian's arm64 libraries into a folder, for a build by the cross compiler and for qemu-user. Needs no root and
# leaves the packages of this system alone. Nothing is downloaded that is there already.
#
#   scripts/arm64_root.sh FOLDER
#
# Debian 12's qemu-user ignores MADV_WIPEONFORK, so that a forked child would go on in its parent's memory: FOLDER/emulator gets that
# of Debian 13, which is static. FOLDER/tools has compilers and binutils for that machine under their plain names.
set -eu

root=$(realpath -m "$1")
packages=(libc6-dev libdw-dev libelf-dev libzstd-dev libxxhash-dev libsmartcols-dev libncurses-dev libjansson-dev libiberty-dev
	libprotobuf-c-dev zlib1g-dev libzydis-dev libmicrohttpd-dev libsqlite3-dev libcurl4-openssl-dev libbpf-dev libcmocka-dev
	libstdc++6 libunwind-dev libjemalloc2 dash coreutils perl-base python3 python3.11 libpython3.11-dev lua5.1 lua5.2 lua5.3 lua5.4 liblua5.4-dev luajit
	ruby3.1 php8.2-cli
	openjdk-17-jre-headless)
emulator="qemu-user of trixie"
stamp=$root/packages
if [[ -e $stamp && $(<"$stamp") == "${packages[*]} $emulator" ]]; then
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
apt=(-qq -o "Dir::State::Lists=$root/apt/lists" -o "Dir::State::status=$root/apt/status" -o "Dir::Cache=$root/apt" -o Debug::NoLocking=1
	-o "Dir::Etc::SourceList=$root/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root)
uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sed -n 1p)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri ${emulator##* } main" >"$root/apt/sources.list"
mkdir "$root"/{emulator,tools}
apt-get "${apt[@]}" update
(cd "$root/apt" && apt-get "${apt[@]}" download "${emulator%% *}")
dpkg-deb --fsys-tarfile "$root/apt/${emulator%% *}"_*.deb | tar -x --strip-components=3 -C "$root/emulator" ./usr/bin/qemu-aarch64
rm -r "$root/apt"
for tool in gcc g++; do
	printf '#!/bin/sh\nexec aarch64-linux-gnu-%s --sysroot=%s "$@"\n' $tool "$root" >"$root/tools/$tool"
	chmod +x "$root/tools/$tool"
done
ln -s gcc "$root/tools/cc"
for tool in nm objcopy objdump readelf strip; do ln -s "$(command -v aarch64-linux-gnu-$tool)" "$root/tools/$tool"; done
# Links to libraries, as from libz.so, go through the root of the file system.
find "$root/usr/lib" -type l -lname '/*' | while read -r link; do
	ln -sf "$root$(readlink "$link")" "$link"
done
printf "[constants]\nroot = '%s'\n" "$root" >"$root/cross.ini"
echo "${packages[*]} $emulator" >"$stamp"
