-- blocked: what the threads that wait for a lock say that they hold. Needs no rule, and writes nothing.
--
-- KEYS 1 the queue   2 the positions
-- ->  the records of those of the first hundred waiters that say so, and are alive
local answer, owners = {}, redis.call('ZRANGE', KEYS[1], 0, 99)
if not owners[1] then return answer end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] - 1577836800000000
for _, position in ipairs(redis.call('HMGET', KEYS[2], unpack(owners))) do
  local p = position and cmsgpack.unpack(position)
  if p and now - p[2] <= p[3] * 1000 and string.find(p[5], '\t.*\t') then answer[#answer + 1] = p[5] end
end
return answer
