-- The server's time, and the numbers made from it.

local clock

-- now() -> microseconds since 2020 by the server's clock, read once per script.
local function now()
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2] - 1577836800000000 -- 2020-01-01 in microseconds since 1970
  end
  return clock
end

-- number() -> the next grant number of this lock: above every earlier one, and not below the time, so that
-- numbers still grow when Redis has lost the last one. Kept for two hours after the number's own time (not
-- after now: a clock set back must not make it expire early). Raises an error where a token, which has 52 bits
-- for the number, could not hold it: only another program can have written such a last number.
local function number()
  local n = now()
  local last = call('SET', K[4], string.format('%.0f', n), 'PX', '7200000', 'GET')
  if last and (tonumber(last) or 0) >= n then
    if last + 0 >= 4503599627370495 then
      call('SET', K[4], last, 'KEEPTTL')
      error('no token can have a number above the last one, ' .. last .. ' in ' .. K[4])
    end
    n = last + 1
    local ends = (n + 1577836800000000) / 1000 + 7200000
    call('SET', K[4], string.format('%.0f', n), 'PXAT', string.format('%.0f', ends))
  end
  return n
end
