-- SPDX-License-Identifier: BSD-2-Clause
-- Begins the pairs of services, and ends with the last of them.
local skynet = require "skynet"
require "skynet.manager"

local PAIRS = 4

skynet.start(function()
  local left = PAIRS
  skynet.dispatch("lua", function()
    left = left - 1
    if left == 0 then skynet.abort() end
  end)
  for _ = 1, PAIRS do skynet.newservice("caller", skynet.self()) end
end)
