# SPDX-License-Identifier: BSD-2-Clause
# A redis-server that had many keys, of which 19 of 20 were deleted. bash begins it in an empty folder.
cat > visits.lua <<'END'
for i = 1, 100000 do redis.call('set', 'visit:' .. i, string.rep('x', 60 + i % 840)) end
for i = 1, 100000 do if i % 20 ~= 0 then redis.call('del', 'visit:' .. i) end end
END
redis-server --port 0 --unixsocket $PWD/socket --save '' > redis.log &
PID=$!
until redis-cli -s socket ping > client.log 2>&1; do kill -0 $PID; sleep 0.1; done
redis-cli -s socket --eval visits.lua
(while sleep 0.01; do echo "lpush orders $(printf %0500d 1)"; done | redis-cli -s socket > orders.log) &
