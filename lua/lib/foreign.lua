-- foreign_key(): raises an error that says what the key holds, for a key that is in use by another kind of
-- lock or by a foreign program. Writes nothing. (Plain text, because servers before 7.0 cannot raise anything
-- else.)
local function foreign_key()
  local function a(what)
    return (string.find(what, '^[aeiou]') and 'an ' or 'a ') .. what
  end
  local holds = redis.pcall('HGET', K[1], 'kind')
  -- A foreign hash may contain any text there.
  if type(holds) ~= 'string' or not string.find(holds, '^%a[%a -]*$') or holds == kind.tag then
    holds = redis.pcall('TYPE', K[1]).ok -- nil without the right to use TYPE
    local text = holds == 'string' and redis.pcall('GET', K[1])
    if type(text) == 'string' and string.find(text, '^%x+%-[%x-]+:%d+~?$') then holds = 'simple lock' end
  end
  error('WRONGTYPE key "' .. K[1] .. '" is ' .. (holds and a(holds) or 'something else') .. ', not ' .. a(kind.tag), 0)
end

-- fetch(...) -> Redis's reply to this read of K[1]; foreign_key() if that key has another type
local function fetch(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) then foreign_key() end
  return call(...) -- raises it
end
