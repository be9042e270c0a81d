#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs the Debian packages that a task needs, or says what is missing.
#
#   scripts/deps.sh SET...            installs what is missing of the sets: build, check, deb, bench
#   scripts/deps.sh --missing SET...  installs nothing; names what is missing and exits with 1 if
#                                     anything is
#
# With nothing missing neither root nor a network is needed.
set -eu

packages() {
	case $1 in
	build) echo gcc libc6-dev meson ninja-build pkgconf libdw-dev libelf-dev libzstd-dev \
		libxxhash-dev libsmartcols-dev libncurses-dev libjansson-dev libiberty-dev \
		libprotobuf-c-dev protobuf-c-compiler zlib1g-dev libzydis-dev libmicrohttpd-dev libsqlite3-dev libcurl4-openssl-dev scdoc \
		clang bpftool libbpf-dev linux-libc-dev erlang-dev ;;
	# redis-tools holds the server's program as well; redis-server would start a service.
	# Neither do haproxy, lighttpd-modules-lua and prosody stand here, for that reason; their tests skip.
	# The 32-bit libraries come one by one because gcc-multilib conflicts with cross compilers.
	check) echo libcmocka-dev libunwind-dev clang clang-format libclang-rt-14-dev g++ \
		redis-tools sqlite3 gdb musl-tools libc6-dbg libc6-dev-i386 lib32gcc-12-dev binutils \
		rustc python3 python3-dev python3-jsonschema ruby nodejs util-linux procps tmux graphviz esbuild node-typescript \
		python3-selenium chromium chromium-driver fonts-dejavu-core \
		google-perftools libgoogle-perftools4 libgoogle-perftools-dev libjemalloc2 libjemalloc-dev mariadb-server-core php-cli prometheus clickhouse-server \
		erlang-tools cmake python3-pytest python3-gunicorn liblua5.1-0-dev liblua5.2-dev liblua5.3-dev liblua5.4-dev lua5.1 lua5.2 lua5.3 lua5.4 luajit libluajit-5.1-dev neovim \
		libmimalloc2.0 libtcmalloc-minimal4 lintian ;;
	deb) echo debhelper dpkg-dev liblua5.1-0-dev liblua5.2-dev liblua5.3-dev liblua5.4-dev ;;
	bench) echo g++ clang rustc ruby nodejs libc6-dbg redis-tools sqlite3 heaptrack libgoogle-perftools4 libjemalloc2 \
		bpfcc-tools bpftrace ;;
	*)
		echo "deps.sh: unknown set '$1'; there are: build check deb bench" >&2
		exit 2
		;;
	esac
}

is_installed() {
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# apt-get as root, without questions, and never at the price of a package that is there.
install_packages() {
	local sudo=()
	if [[ $(id -u) -ne 0 ]]; then
		if ! command -v sudo >/dev/null; then
			echo "deps.sh: cannot install: not root, and there is no sudo; as root, run:" \
				"apt-get install --no-install-recommends $*" >&2
			exit 1
		fi
		sudo=(sudo)
	fi
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -q -y \
		--no-install-recommends --no-remove "$@"
}

only_tell=
if [[ ${1:-} == --missing ]]; then
	only_tell=1
	shift
fi

if ! command -v dpkg-query >/dev/null; then
	echo "deps.sh: not a Debian system; install what these Debian packages hold:" >&2
	for set in "$@"; do echo "  $set: $(packages "$set")" >&2; done
	exit 0
fi

missing=()
for set in "$@"; do
	for package in $(packages "$set"); do
		is_installed "$package" || missing+=("$package")
	done
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ -n $only_tell ]]; then
	echo "missing: ${missing[*]}" >&2
	exit 1
fi
install_packages "${missing[@]}"
