# SPDX-License-Identifier: BSD-2-Clause
# A request that keeps what it imports. bash begins it in an empty folder; $PID is the worker that grows.
cat > import.php <<'END'
<?php
class Catalog {
    private static array $items = [];
    static function keep(int $number): void {
        self::$items[] = str_repeat("item $number ", 100);
    }
}
set_time_limit(0);
for ($number = 0; ; $number++) {
    Catalog::keep($number);
    if ($number > 20000)
        usleep(2000);
    if ($number == 20000)
        file_put_contents(__DIR__ . "/ready", getmypid());
}
END
cat > fpm.conf <<END
[global]
error_log = $PWD/fpm.log
[www]
listen = $PWD/socket
pm = static
pm.max_children = 2
user = $(id -un)
php_admin_value[memory_limit] = -1
END
setpriv --pdeathsig TERM $(ls /usr/sbin/php-fpm* | tail -n 1) -R -n -F -y fpm.conf > fpm.out 2>&1 &
until [ -S socket ]; do kill -0 $!; sleep 0.1; done
REQUEST_METHOD=GET SCRIPT_FILENAME=$PWD/import.php cgi-fcgi -bind -connect $PWD/socket > request.log &
until [ -s ready ]; do kill -0 $!; sleep 0.1; done
PID=$(cat ready)
