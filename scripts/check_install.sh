#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs into a temporary folder and uses what came there: check_install.sh BUILD PREFIX CC...
set -eu
build=$1 prefix=$2 compiler=("${@:3}") # of several words behind ccache
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$root"

cat >"$root/program.c" <<'END'
#include <heapline/heapline.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	struct hl_status status = {.size = sizeof(status)};
	free(malloc(1000));
	if (hl_status_get(&status))
		return 1;
	printf("%s %d\n", hl_version(), (int)status.recording);
	return 0;
}
END
cd "$root"
package=$(find . -name heapline.pc)
flags=$(PKG_CONFIG_SYSROOT_DIR=$root pkg-config --cflags --libs "$package")
# shellcheck disable=SC2086 # several flags
"${compiler[@]}" -o program program.c $flags

libraries=$(dirname "$(find "$root" -name libheapline.so)")
heapline=$root$prefix/bin/heapline
plain=$(LD_LIBRARY_PATH=$libraries ./program)
recorded=$(LD_LIBRARY_PATH=$libraries "$heapline" record -q -o r.hl -- ./program)
version=$("$heapline" version)
if [[ "heapline $plain" != "$version 0" || "heapline $recorded" != "$version 1" ]]; then
	echo "the program says '$plain' alone and '$recorded' recorded; heapline is '$version'"
	exit 1
fi
"$heapline" folded --value alloc r.hl | grep -q ';main 1000$' || {
	echo "the installed heapline did not record the program's allocation"
	exit 1
}
for page in heapline heapline-record heapline-top heapline-folded heapline-info; do
	[[ -f $root$prefix/share/man/man1/$page.1 ]] || { echo "no man page $page"; exit 1; }
done
