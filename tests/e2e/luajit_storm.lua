-- SPDX-License-Identifier: BSD-2-Clause
-- Compiles and flushes traces all the time, with coroutines, errors, metamethods and callbacks in between: ROUNDS, or until there is a file STOP. Writes
-- what it has in use.
local ffi = require "ffi"
ffi.cdef [[ void *malloc(size_t); void free(void*); void qsort(void *, size_t, size_t, int (*)(const int *, const int *)); ]]
require("jit.opt").start("hotloop=2", "hotexit=2", "maxmcode=64", "sizemcode=32", "maxtrace=200")
local seed = 12345
local function rnd(n) seed = (seed * 1103515245 + 12345) % 2147483648 return seed % n + 1 end
local kept = {}
local mt = {__index = function(t, k) local v = {k} rawset(t, k, v) return v end,
  __add = function(a, b) return setmetatable({x = a.x + b.x}, getmetatable(a)) end,
  __concat = function(a, b) return "c" .. a.x .. b.x end}
local fns = {}
for i = 1, 60 do
  fns[i] = loadstring(string.format([[
    local kept, ffi, mt = ...
    return function(n)
      local s = 0
      for i = 1, n do
        local t = {i, x = i, y = {%d}}
        kept[(i * %d) %% 500 + 1] = t
        if i %% %d == 0 then local p = ffi.C.malloc(i %% 100 + 1) ffi.C.free(p) s = s .. "" s = tonumber(s) end
        if i %% %d == 0 then kept[#kept + 1] = tostring(i) .. "x" end
        local a = setmetatable({x = i}, mt) + setmetatable({x = 2}, mt)
        s = s + a.x
      end
      return s
    end]], i, i, i % 7 + 2, i % 5 + 2), "=fn" .. i)(kept, ffi, mt)
end
local function co_body(i)
  for r = 1, 5 do
    fns[i](20)
    coroutine.yield(r)
  end
end
local cb = ffi.cast("int (*)(const int *, const int *)", function(a, b) local t = {a[0], b[0]} kept[1] = t return a[0] - b[0] end)
local arr = ffi.new("int[20]")
-- A compiled call must not call back into Lua.
local function sort() ffi.C.qsort(arr, 20, 4, cb) end
jit.off(sort)
local rounds, stop = tonumber(arg[1]), arg[2]
for round = 1, rounds do
  if stop and io.open(stop) then break end
  for i = 1, #fns do
    fns[i](rnd(60))
    if rnd(20) == 1 then jit.flush() end
    if rnd(10) == 1 then
      local co = coroutine.wrap(co_body)
      for r = 1, 5 do co(i) end
    end
    if rnd(10) == 1 then
      local ok = pcall(function() local t = {} for k = 1, 30 do t[k] = {k} if k == 25 then error({k}) end end end)
    end
    if rnd(30) == 1 then
      for k = 0, 19 do arr[k] = rnd(100) end
      sort()
    end
    if rnd(15) == 1 then kept[rnd(500)] = string.rep("ab", rnd(3000)):gsub("a", function(c) return {c} and c end) end
  end
  for i = 5000, #kept do kept[i] = nil end
  if round % 7 == 0 then collectgarbage() end
end
io.write(collectgarbage("count") * 1024, "\n")
os.exit(0)
