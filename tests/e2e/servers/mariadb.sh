# SPDX-License-Identifier: BSD-2-Clause
# A client that prepares statements and never deallocates them. bash begins it in an empty folder; $PID is the process that grows.
mkdir data
mariadbd --no-defaults --datadir=$PWD/data --socket=$PWD/socket --skip-networking --skip-grant-tables --user=root \
    --innodb-buffer-pool-size=8M --innodb-log-buffer-size=2M > mariadb.log 2>&1 &
PID=$!
until mariadb -S socket -e 'select 1' > client.log 2>&1; do kill -0 $PID; sleep 0.1; done
{
    seq 1500 | sed "s/.*/prepare p& from 'select &';/"
    echo "select 'ready';"
    for ((i = 1501; i < 16000; i++)); do echo "prepare p$i from 'select $i';"; sleep 0.02; done
} | mariadb -n -S socket > statements.log &
until grep -q ready statements.log; do sleep 0.1; done
