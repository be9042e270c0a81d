# SPDX-License-Identifier: BSD-2-Clause
# A service that keeps each message. bash begins it in an empty folder; $SKYNET_DIR is a checkout of skynet that has been built.
cat > main.lua <<'END'
local skynet = require "skynet"
skynet.start(function()
  local hall = skynet.newservice "hall"
  for i = 1, math.maxinteger do
    skynet.call(hall, "lua", { player = i, text = string.rep("x", 500) .. i })
    if i == 20000 then print "ready" io.flush() end
    if i > 20000 and i % 10 == 0 then skynet.sleep(1) end
  end
end)
END
cat > hall.lua <<'END'
local skynet = require "skynet"
local messages = {}
skynet.start(function()
  skynet.dispatch("lua", function(_, _, message)
    messages[#messages + 1] = message.text
    skynet.ret()
  end)
end)
END
cat > config <<END
luaservice = "./service/?.lua;$PWD/?.lua"
lualoader = "./lualib/loader.lua"
lua_path = "./lualib/?.lua;./lualib/?/init.lua"
lua_cpath = "./luaclib/?.so"
cpath = "./cservice/?.so"
thread = 2
harbor = 0
start = "main"
bootstrap = "snlua bootstrap"
END
(cd $SKYNET_DIR && exec ./skynet $OLDPWD/config) > skynet.log &
PID=$!
until grep -q ready skynet.log; do kill -0 $PID; sleep 0.1; done
