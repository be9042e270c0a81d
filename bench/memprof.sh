#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds php-memprof, beside which `make bench` can measure PHP; needs the headers of PHP and Judy (Debian: php-dev libjudy-dev):
#
#   git clone https://github.com/arnaud-lb/php-memory-profiler
#   bench/memprof.sh php-memory-profiler /tmp/memprof
#   PHP_MEMPROF=/tmp/memprof make bench ONLY=php
set -eu

if [[ $# -ne 2 || ! -f $1/memprof.c ]]; then
	echo "usage: memprof.sh CHECKOUT DIRECTORY" >&2
	exit 2
fi
mkdir -p "$2"
out=$(readlink -f "$2")
includes=$("${PHP_CONFIG:-php-config}" --includes)
# What its ./configure finds on Linux, where libc has no hooks of malloc any more
${CC:-cc} -O2 -fPIC -shared -w -DCOMPILE_DL_MEMPROF=1 -DHAVE_JUDYLIB=1 -DHAVE_MALLOC_HOOKS=0 -DMEMPROF_CONFIGURE_VERSION=3 -DMEMPROF_DEBUG=0 \
	-DZEND_ENABLE_STATIC_TSRMLS_CACHE=1 ${CPPFLAGS:-} $includes -I"$1" "$1/memprof.c" "$1/util.c" -o "$out/memprof.so" ${LDFLAGS:-} -lJudy
echo "extension=$out/memprof.so" >"$out/memprof.ini" # read where PHP_INI_SCAN_DIR leads there
echo "built in $out"
