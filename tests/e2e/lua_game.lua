-- SPDX-License-Identifier: BSD-2-Clause
-- Allocates as scripts of games do; for lua_host.c, whose functions enter(), go_deep() and fork() are.
local Entity = {}
Entity.__index = Entity
Entity.__tostring = function(self)
  return string.format('%s@%d,%d', self.name, self.x, self.y)
end
Entity.__add = function(a, b)
  return setmetatable({name = a.name .. b.name, x = a.x + b.x, y = a.y, tags = {}},
    Entity)
end
local function make(i)
  return setmetatable({
    name = 'entity' .. i,
    x = i, y = i * 2,
    tags = {'a', 'b', i},
  }, Entity)
end
local world = {}
local function tick(n)
  local messages = {}
  for i = 1, n do
    local e = world[i] or make(i)
    world[i] = e
    messages[#messages + 1] = tostring(e)
    e.callbacks = {function() return e.name end,
      function(...)
        return {...}
      end}
    if i % 7 == 0 then
      world[i] = e + make(i + 1000)
    end
    if i % 5 == 0 then
      e.callbacks[2](1, 2, i)
      e['key' .. i % 50] = {
        nested = {i, {i}},
      }
    end
  end
  return table.concat(messages, ';')
end
local function fail(i)
  local ok, message = pcall(function()
    local t = {}
    error({code = i, text = 'failed ' .. i})
  end)
  return message
end
local function deep(n)
  if n == 0 then
    return {n}
  end
  local r = deep(n - 1)
  r[#r + 1] = n .. 'x'
  return r
end
local function sorted(n)
  local t = {}
  for i = 1, n do t[i] = {key = (i * 7919) % n} end
  table.sort(t, function(a, b)
    local pair = {a, b}
    return pair[1].key < pair[2].key
  end)
  return t
end
local function run(round)
  tick(100)
  fail(round)
  deep(30)
  sorted(20)
  local s = ''
  for i = 1, 20 do s = s .. string.rep('ab', i) end
  string.gsub(s, 'a+', function(m)
    return m .. round
  end)
  local t = {}
  for w in string.gmatch('one two three', '%a+') do
    t[#t + 1] = w .. round
  end
end
for round = 1, 60 do run(round) end
local states = {}
for i = 1, 20 do
  states[i] = coroutine.create(function(a)
    local kept = {}
    for j = 1, 10 do
      kept[j] = {a, j}
      tick(20)
    end
    return kept
  end)
  enter(states[i])
  coroutine.resume(states[i], i)
  enter()
end
-- Deep enough that the stack is moved, and given back by the system where it lay.
enter()
go_deep()
local deepest = deep(15000)
if fork() == 0 then
  tick(50)
end
