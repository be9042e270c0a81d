-- SPDX-License-Identifier: BSD-2-Clause
-- Makes tables below as many calls as its argument says: how many, it is told line by line; it answers
-- how many nanoseconds of processor time each took.

local function answer()
  for line in io.lines() do
    local count, from = tonumber(line), os.clock()
    for _ = 1, count do
      local _ = {}
    end
    io.write(string.format("%.3f\n", (os.clock() - from) / count * 1e9))
    io.flush()
    collectgarbage()
  end
  return 0
end

local function call(left)
  local seconds = left > 0 and call(left - 1) or answer()
  return seconds
end

call(tonumber(arg[1]))
