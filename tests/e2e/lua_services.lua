-- What services of lua_services.c do with a message: echo builds tables and drops them, hoarder keeps what it gets.
local kept = {}

local function echo(i)
  local t = {}
  for j = 1, 20 do
    t[j] = {id = j, text = 'item ' .. i .. ' ' .. j}
  end
  receive(64, false)
  return coroutine.wrap(function() return #t end)()
end

local function hoard(i)
  kept[#kept + 1] = {i, tostring(i)}
  receive(100, true)
end

function message(i)
  if name == 'echo' then
    echo(i)
  elseif name == 'hoarder' then
    hoard(i)
  end
end
