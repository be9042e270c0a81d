#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs the Debian packages that a task needs, or says what is missing.
#
#   scripts/deps.sh SET...            installs what is missing of the sets: build, check, versions, basic, deb, bench
#   scripts/deps.sh --missing SET...  installs nothing; names what is missing and exits with 1 if
#                                     anything is
#
# With nothing missing neither root nor a network is needed. Of `build` each package is needed. The other sets are as
# complete as the release can make them: what it does not have is named and left out, and a test that needs it skips.
set -eu

# A word names the package that is wanted, or several, as a|b: the first one that the release has.
packages() {
	case $1 in
	build) echo gcc libc6-dev meson ninja-build pkgconf libdw-dev libelf-dev libzstd-dev \
		libxxhash-dev libsmartcols-dev libncurses-dev libjansson-dev libiberty-dev \
		libprotobuf-c-dev protobuf-c-compiler zlib1g-dev libzydis-dev libmicrohttpd-dev libsqlite3-dev libcurl4-openssl-dev scdoc \
		clang 'bpftool|linux-tools-generic' libbpf-dev linux-libc-dev erlang-dev ;;
	# redis-tools holds the server's program as well; redis-server would start a service.
	# Neither do haproxy, lighttpd-modules-lua, nginx-light, php-fpm, postgresql and prosody stand here, for that reason; their tests skip.
	# The 32-bit libraries come one by one because gcc-multilib conflicts with cross compilers.
	check) echo libcmocka-dev libunwind-dev clang clang-format 'libclang-rt-dev|libclang-rt-14-dev' g++ \
		redis-tools sqlite3 gdb musl-tools libc6-dbg libc6-dev-i386 "lib32gcc-$(gcc_major)-dev" binutils \
		rustc python3 python3-dev python3-jsonschema python3-yaml ruby nodejs util-linux procps tmux graphviz esbuild node-typescript \
		python3-selenium chromium chromium-driver fonts-dejavu-core debootstrap \
		google-perftools libgoogle-perftools4 libgoogle-perftools-dev libjemalloc2 libjemalloc-dev mariadb-server-core mariadb-client-core php-cli libfcgi-bin puma curl prometheus clickhouse-server crun \
		qemu-system-arm qemu-system-x86 qemu-user g++-aarch64-linux-gnu spin erlang-tools cmake libgtest-dev catch2 python3-yaml python3-pytest-xdist python3-pytest python3-gunicorn liblua5.1-0-dev liblua5.2-dev liblua5.3-dev liblua5.4-dev lua5.1 lua5.2 lua5.3 lua5.4 luajit libluajit-5.1-dev neovim \
		'libmimalloc3|libmimalloc2.0' libtcmalloc-minimal4 lintian reuse mkdocs-material mandoc ;;
	# Of the unit and cli tests, and of those that every release must pass in a few minutes.
	# Subjects of tests/versions.py, which runs in a release of its own: services do not start there.
	versions) echo python3 python3.14 ruby php-cli lua5.4 nodejs openjdk-21-jdk-headless openjdk-25-jdk-headless erlang-base redis-tools \
		valkey-server mariadb-server-core mariadb-client-core postgresql libjemalloc2 'libmimalloc3|libmimalloc2.0' libtcmalloc-minimal4 ;;
	basic) echo libcmocka-dev g++ python3 python3-jsonschema ;;
	deb) echo build-essential debhelper dpkg-dev liblua5.1-0-dev liblua5.2-dev liblua5.3-dev liblua5.4-dev ;;
	bench) echo g++ clang rustc ruby nodejs libc6-dbg redis-tools sqlite3 heaptrack libgoogle-perftools4 libjemalloc2 \
		bpfcc-tools bpftrace ;;
	*)
		echo "deps.sh: unknown set '$1'; there are: build check versions basic deb bench" >&2
		exit 2
		;;
	esac
}

# Of the compiler that is here, or that the package gcc would bring.
gcc_major() {
	if command -v gcc >/dev/null; then
		gcc -dumpversion | cut -d . -f 1
	else
		apt-cache depends gcc 2>/dev/null | sed -n 's/.*Depends: gcc-\([0-9]*\)$/\1/p'
	fi
}

# Names what is installed, and what that provides: libfoo1 may have become libfoo1t64.
list_installed() {
	dpkg-query -W -f '${db:Status-Status} ${Package}, ${Provides}\n' |
		sed -n 's/^installed //p' | tr ',' '\n' | awk '{print $1}'
}

# Names those of the packages that apt could install, under their own name or the only other one that provides it.
list_available() {
	LC_ALL=C apt-cache policy "$@" 2>/dev/null |
		awk '/^[^ ]/ {name = $1; sub(/:$/, "", name)} /^  Candidate: [^(]/ {print name}'
	LC_ALL=C apt-cache showpkg "$@" 2>/dev/null |
		awk '$1 == "Package:" {name = $2; provided = 0} provided && NF {by[name SUBSEP $1]} /^Reverse Provides:/ {provided = 1}
			END {for (pair in by) {split(pair, part, SUBSEP); count[part[1]]++} for (name in count) if (count[name] == 1) print name}'
}

# first_of WORD LIST: the first of the word's packages that stands in the list; nothing, if none does.
first_of() {
	local name
	for name in ${1//|/ }; do
		if [[ $'\n'$2$'\n' == *$'\n'$name$'\n'* ]]; then
			echo "$name"
			return
		fi
	done
}

# apt-get as root, without questions, and never at the price of a package that is there.
as_root() {
	local sudo=()
	[[ $(id -u) -eq 0 ]] || sudo=(sudo)
	"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 "$@"
}

get_packages() {
	as_root apt-get install -q -y --no-install-recommends --no-remove "$@"
}

leave_out() {
	echo "deps.sh: left out, because $1; what needs them is skipped: ${*:2}" >&2
}

# Installs as many as can be.
get_what_can_be_had() {
	local kept=() refused=() name
	if ! get_packages -s "$@" >/dev/null 2>&1; then
		for name in "$@"; do
			if get_packages -s "${kept[@]}" "$name" >/dev/null 2>&1; then
				kept+=("$name")
			else
				refused+=("$name")
			fi
		done
		set -- "${kept[@]}"
		leave_out "apt cannot install them here" "${refused[@]}"
	fi
	[[ $# -eq 0 ]] || get_packages "$@" || leave_out "apt-get failed" "$@"
}

# Sorts what is missing of a set into found[], by the names that apt knows, and unknown[].
find_missing() {
	local list word name words missing=() available
	found=() unknown=()
	list=$(packages "$1")
	read -r -a words <<<"$list"
	list=$(list_installed)
	for word in "${words[@]}"; do
		[[ -n $(first_of "$word" "$list") ]] || missing+=("$word")
	done
	[[ ${#missing[@]} -gt 0 ]] || return 0
	update_once
	list=${missing[*]}
	# shellcheck disable=SC2086 # several names
	available=$(list_available ${list//|/ })
	for word in "${missing[@]}"; do
		name=$(first_of "$word" "$available")
		# The build needs each: apt says what is wrong with it. And an apt that knows nothing has no list of packages.
		if [[ -z $name && ($1 == build || (-n $only_tell && -z $available)) ]]; then
			name=${word%%|*}
		fi
		if [[ -n $name ]]; then
			found+=("$name")
		else
			unknown+=("$word")
		fi
	done
	[[ ${#unknown[@]} -eq 0 ]] || leave_out "this release does not have them" "${unknown[@]}"
}

is_updated=
update_once() {
	[[ -z $only_tell && -z $is_updated ]] || return 0
	if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
		echo "deps.sh: cannot install: not root, and there is no sudo; as root, run: $command" >&2
		exit 1
	fi
	as_root apt-get update -q
	is_updated=1
}

command="$0 $*"
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

# The build's come first: the compiler says which 32-bit libraries fit it.
all=()
for set in "$@"; do
	find_missing "$set"
	if [[ -n $only_tell ]]; then
		all+=("${found[@]}")
	elif [[ ${#found[@]} -gt 0 && $set == build ]]; then
		get_packages "${found[@]}" || {
			echo "deps.sh: cannot install what the build needs: ${found[*]}" >&2
			exit 1
		}
	elif [[ ${#found[@]} -gt 0 ]]; then
		get_what_can_be_had "${found[@]}"
	fi
done
[[ ${#all[@]} -eq 0 ]] || {
	echo "missing: ${all[*]}" >&2
	exit 1
}
