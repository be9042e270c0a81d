-- SPDX-License-Identifier: BSD-2-Clause
-- Sends tables to an echo and waits for each.
local skynet = require "skynet"

local parent = tonumber((...))
local ITEMS = 10

skynet.start(function()
  skynet.fork(function()
    local echo = skynet.newservice "echo"
    for call = 1, tonumber(os.getenv "SKYNET_CALLS") do
      local items = {}
      for i = 1, ITEMS do items[i] = { id = i, value = call } end
      skynet.call(echo, "lua", items)
    end
    skynet.send(parent, "lua")
  end)
end)
