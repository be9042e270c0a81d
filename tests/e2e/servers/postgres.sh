# SPDX-License-Identifier: BSD-2-Clause
# A client that prepares statements and never deallocates them. As root, who gives the server another user. bash begins it in an empty folder; $PID is the process that grows.
as() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
chmod 777 .
as $bin/initdb -D $PWD/data -A trust -U postgres --no-sync > initdb.log
as $bin/postgres -D $PWD/data -k $PWD -F -c listen_addresses= -c shared_buffers=8MB > postgres.log 2>&1 &
until psql -h $PWD -U postgres -c 'select 1' > client.log 2>&1; do kill -0 $!; sleep 0.1; done
{
    seq 4000 | sed "s/.*/prepare p& as select &;/"
    echo "select 'ready', pg_backend_pid();"
    for ((i = 4001; ; i++)); do echo "prepare p$i as select $i;"; sleep 0.01; done
} | psql -qAt -h $PWD -U postgres > statements.log &
until grep -q ready statements.log; do sleep 0.1; done
PID=$(grep -o '[0-9]*$' statements.log)
