-- SPDX-License-Identifier: BSD-2-Clause
-- Returns a copy of each table that it gets.
local skynet = require "skynet"

skynet.start(function()
  skynet.dispatch("lua", function(_, _, items)
    local copy = {}
    for i, item in ipairs(items) do copy[i] = { id = item.id, value = item.value } end
    skynet.ret(skynet.pack(copy))
  end)
end)
