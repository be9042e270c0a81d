#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command in another release of Debian, on a copy of the tree in /src.
#
#   scripts/release.sh SUITE FOLDER COMMAND
#
# FOLDER becomes the release, by debootstrap; one that is there is used again. The shell command COMMAND runs in it as
# root, without this environment and with this network. All mounts are made in a mount namespace that ends with the last
# process, so none stays, whatever happens. Exits with 77 and a reason where no release can be made here, otherwise as COMMAND does.
set -eu
suite=$1 folder=$(realpath -m "$2") command=$3
tree=$(dirname "$(dirname "$(readlink -f "$0")")")

skip() {
	echo "skipped: $*"
	exit 77
}

if [[ -z ${RELEASE_NAMESPACE:-} ]]; then
	[[ $(id -u) -eq 0 ]] || skip "only root can make Debian's '$suite' in a folder"
	PATH=$PATH:/usr/sbin:/sbin
	command -v debootstrap >/dev/null || skip "'debootstrap' is not installed"
	git -C "$tree" rev-parse --verify -q HEAD >/dev/null || skip "the tree is copied by git, and this is not a checkout"
	unshare --mount true 2>/dev/null || skip "no mount namespace can be made here"
	RELEASE_NAMESPACE=1 PATH=$PATH exec unshare --mount --propagation private "$0" "$suite" "$folder" "$command"
fi

# A Debian machine's own mirror is the nearest.
mirror=
if grep -qx 'ID=debian' /etc/os-release; then
	mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		grep -oE '^(URIs:|deb )[^#]*https?://[^ ]*/debian/?( |$)' | grep -oE 'https?://[^ ]*' | head -n 1)
fi
mkdir -p "$folder"
mount --bind "$folder" "$folder"
if [[ ! -e $folder/made ]]; then
	find "$folder" -mindepth 1 -delete
	timeout --kill-after 10 "${RELEASE_SECONDS:-600}" debootstrap --variant=minbase --include=git,make,ca-certificates \
		"$suite" "$folder" "${mirror:-http://deb.debian.org/debian}" >"$folder.log" 2>&1 || {
		why=$?
		skip "debootstrap could not make '$suite' (status $why): $(grep -E '^[EW]: ' "$folder.log" | tail -n 1)"
	}
	touch "$folder/made"
fi
for mount in dev proc sys; do mount --rbind "/$mount" "$folder/$mount"; done
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/" 2>/dev/null || true
# That mirror is reached as this system reaches it, and is as old as it may be here.
apt-config dump 2>/dev/null | grep -iE '^Acquire::(.*::Proxy|Check-Valid-Until)' >"$folder/etc/apt/apt.conf.d/90here" || true

# The last commit, with what has been changed in its files since. What was built from other files stays.
[[ -e $folder/src ]] || git clone -q --no-checkout "$tree" "$folder/src"
git -C "$folder/src" fetch -q "$tree" HEAD
git -C "$folder/src" reset -q --hard FETCH_HEAD
git -C "$tree" diff --binary HEAD >"$folder/changes"
[[ ! -s $folder/changes ]] || git -C "$folder/src" apply --index "$folder/changes"

mapfile -t proxies < <(env | grep -i '^[a-z]*_proxy=')
# The kernel makes no user namespaces in a chroot; where the root cannot be changed, tests that need one skip.
cd "$folder"
if pivot_root . . 2>/dev/null; then umount --lazy .; fi
exec env -i HOME=/root TERM="${TERM:-dumb}" PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "${proxies[@]}" \
	chroot . bash -c "cd /src && $command"
