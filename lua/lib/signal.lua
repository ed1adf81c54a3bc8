-- signal: moves the waiter that has waited longest for a condition to the end of the lock's queue, where a
-- leaving holder will admit it. If it is sent twice, it may move one more waiter. One request moves, looks at
-- or counts a bounded number of waiters.
--
-- ARGV 5 condition   6 'one' | 'all' | 'count' (moves none)   7 from: where an earlier request ended, or ''
-- ->  how many waiters were moved, or are waiting; -1: the owner is not inside
--     {how many, from}: those were not all, and the next request continues from there
--@ parts
local what = F[6]
--@ straight
-- Nearly always the waiter has been heard without a gap, is listening, and comes after all that wait for the lock. This
-- ends as signal() would, which decides about all else.
if what == 'one' and string.byte(F[1], -1) ~= 126 and kind.holder() == F[1] then
  local member = call('ZRANGEBYLEX', K[6], '[' .. F[5] .. '|', '(' .. F[5] .. '}', 'LIMIT', '0', '1')[1]
  local waiter = member and string.match(member, '[^|]*$')
  local ok, p = pcall(cmsgpack.unpack, member and redis.pcall('HGET', K[3], waiter))
  if ok and type(p) == 'table' and p[8] and p[6] == F[5] and not p[9] then
    local t, shard = call('TIME'), string.find(F[3], '{', 1, true)
    local us, channel = t[1] * 1000000 + t[2] - 1577836800000000, F[3] .. string.match(waiter, '^[^:]*')
    local listening = redis.pcall('PUBSUB', shard and 'SHARDNUMSUB' or 'NUMSUB', channel)[2] or 0
    local tail = call('ZRANGE', K[2], '-1', '-1', 'WITHSCORES')[2]
    if listening > 0 and us - p[2] <= p[3] * 1000 and not (tail and tail + 0 >= us) then
      call('ZREM', K[6], member)
      call('ZADD', K[2], string.format('%.0f', us), waiter)
      if not tail then call('PEXPIRE', K[2], call('PTTL', K[3])) end
      return 1
    end
  end
end
--@ parts
if not is_inside(F[1]) then return -1 end
local count = 0
if what == 'count' then
  local from = (F[7] or '') ~= '' and '(' .. F[7] or '[' .. F[5] .. '|'
  local members = call('ZRANGEBYLEX', K[6], from, '(' .. F[5] .. '}', 'LIMIT', 0, 100)
  for _, member in ipairs(members) do
    local w = waiting(string.match(member, '[^|]*$'))
    if w and w.condition == F[5] and not silent(w) then count = count + 1 end
  end
  return members[100] and {count, members[100]} or count
end
local arrival, begins = behind_all()
local w, more
repeat
  w, more = signal(F[5], arrival, begins)
  rest = rest - (w and 1 or 0)
  if w and not deaf(w) then
    count, arrival, begins = count + 1, arrival + 1, false
  elseif w then
    -- Nobody listens for the grant: the signal goes to the next waiter.
    drop(w.owner)
  end
until not w or count == 1 and what == 'one'
if count > 0 then wanted(F[1]) end
return more and {count, 'more'} or count
