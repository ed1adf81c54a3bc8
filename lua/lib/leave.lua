-- leave: takes the owner out of the lock and out of the queue, whichever it is in, and admits the next
-- waiter. In the same round trip it makes the request of the next owner, another one of the same process.
--
-- ARGV 5 unsettled: '1' if a request of this owner may still be in flight, so that it gets a
--        tombstone for a minute   6 args   7 record   8 next owner or ''   9 its arrival or ''
--        10 '1': it may come before others, and queues before they are admitted   11 priority
-- ->  1 was inside | 0; for a next owner {1 | 0, 1 | 0 | -1, ...}: followed by acquire's reply
--@ parts
-- nil without a waiter; false for a key of another type, so that the lock is released before the error.
local first = redis.pcall('ZRANGE', K[2], '0', '0')
first = first[1] or first.err and false
--@ straight
if first == nil and not F[5] then return kind.holder() == F[1] and call('DEL', K[1]) or 0 end
-- Nearly always the first waiter has been heard without a gap, and is listening; and the next owner is new, and waits
-- behind all others. This ends in the state and with the message of admit_waiters() and join(), which decide about all
-- else: it is left before its first write, or with that write undone. If that write is rejected, because the memory is
-- full, nothing was written.
if first and (not F[5] or F[8] and F[5] == '' and not F[9]) and string.byte(first, -1) ~= 126
  and kind.holder() == F[1] then
  local ok, p = pcall(cmsgpack.unpack, redis.pcall('HGET', K[3], first))
  -- (The loop remembers who is admitted by a signal while others wait for one.)
  if ok and type(p) == 'table' and p[8]
    and not (p[6] and (call('EXISTS', K[6]) == 1 or call('HEXISTS', K[3], 'signalled') == 1))
    and not (F[8] and call('ZSCORE', K[5], F[8])) then
    local t, shard = call('TIME'), string.find(F[3], '{', 1, true)
    local us, channel = t[1] * 1000000 + t[2] - 1577836800000000, F[3] .. string.match(first, '^[^:]*')
    local count, n = shard and 'SHARDNUMSUB' or 'NUMSUB', string.format('%.0f', us)
    local listening = F[8] and redis.pcall('PUBSUB', count, channel, F[3] .. string.match(F[8], '^[^:]*'))
      or redis.pcall('PUBSUB', count, channel)
    if (listening[2] or 0) > 0 and us - p[2] <= p[3] * 1000
      and (not F[8] or call('ZRANGE', K[2], '-1', '-1', 'WITHSCORES')[2] + 0 < us
        and redis.pcall('ZADD', K[2], 'NX', n, F[8]) == 1) then
      local before = redis.pcall('SET', K[4], n, 'PX', '7200000', 'GET')
      if (tonumber(before or 0) or us) < us then
        local most = p[3] + 0 < 1000 and '1000' or p[3]
        local owner, lease, record = first, p[1] + 0 < most + 0 and p[1] or most, p[5]
        kind.install(owner, lease, record, n)
        call('ZREM', K[2], first)
        local answer = 1
        if F[8] then
          local w = {owner = F[8], lease = F[2], waiter_timeout = F[4], args = F[6], record = F[7]}
          local least, steady, new = lifetime(w), us, false
          place(w, us, least, steady, new)
          local ms = math.max(1, math.ceil(math.min(F[4] / 3, F[2] / 3, lease)))
          answer = {1, 0, us, ms, n, listening[4] == 0 and 1 or nil}
        end
        call('HDEL', K[3], first)
        redis.pcall(shard and 'SPUBLISH' or 'PUBLISH', channel, first .. ' in ' .. n .. ' ' .. lease)
        return answer
      end
      if type(before) == 'string' then call('SET', K[4], before, 'KEEPTTL') end
      if F[8] then call('ZREM', K[2], F[8]) end
    end
  end
end
--@ otherwise
if first == nil and not F[5] then return kind.release(F[1]) and 1 or 0 end
--@ parts
local was_inside, was_last = kind.release(F[1])
was_inside, was_last = was_inside and 1 or 0, was_inside and was_last
local rank = F[8] and first and call('ZSCORE', K[2], first)
--@ otherwise
-- The same for a kind that has no straight path: without the functions for all other cases.
if was_last and first and not (F[5] or F[8] or kind.reject or keeps(first)) then
  local w = waiting(first)
  if w and w.steady and not w.condition and not silent(w) and not deaf(w) then
    local ok, n, value = let_in(w)
    if ok then
      drop(first)
      tell(w, 'in', n, value)
      if kind.is_full and kind.is_full() then return was_inside end
      first = nil
    end
  end
end
--@ parts
if was_inside == 0 then
  -- (A holder has no queue position.) Like release, this begins with a write that cannot grow, so that a full
  -- Redis accepts the rest.
  local w = kind.on_leave and waiting(F[1])
  if w then w.score = call('ZSCORE', K[2], F[1]) end
  drop(F[1])
  first = nil
  if w then kind.on_leave(w, 'left') end
end
if F[5] == '1' then tombstone(F[1]) end
if not F[8] then
  if not was_last then kind.load('') end
  left_to(select(2, admit_waiters(nil, first)))
  return was_inside
end
--@ parts
local left, n, value, answer
if not was_last then left, n, value = kind.load(F[8]) end
local next = {owner = F[8], lease = F[2], waiter_timeout = F[4], args = F[6], record = F[7], from = '',
  arrival = F[9] or '', priority = tonumber(F[11])}
local over, new = has_tombstone(F[8]), false
-- The next owner may come before a waiter that ranks after now, too.
if (F[10] == '1' or rank and rank % CLASS >= now()) and not left and not over
  and not (kind.reject and kind.reject(next)) then
  -- It is in the queue before the next waiter is admitted.
  first, new = nil, select(2, enqueue(next))
end
answer = admit_waiters(F[8], first)
if over then return {was_inside, -1, 'over'} end
if left then
  has_waiters(F[8])
  return {was_inside, 1, n, left, value}
end
if new and not answer and kind.on_wait then kind.on_wait(next) end
return {was_inside, unpack(answer or join(next))}
