-- acquire: acquires, takes a queue position, or keeps it alive. Idempotent by owner.
--
-- ARGV 5 how: 'try' | 'wait' | 'keep' | 'share'   6 args   7 record   8 from   9 arrival or ''
--      10 '1': in place of `from`, which ends   11 priority   12 how many threads may wait before it
-- ->  number                                   admitted with the whole lease: no other owner was in the way
--     {1, number, remaining ms, value}         admitted; value: what the rule adds
--     {0, last number, ms until asking again makes sense, arrival}   busy; followed by 1 if the owner waits
--                  and nobody listens here for its process, which must subscribe again; by 2 if some work was
--                  left to the next script, which may find that the lock is not busy
--     {-1, why}    'gone': keep found no queue position, share found no hold; 'over': this owner has a
--                  tombstone; 'queue-full-<n>-threads-wait'; 'not-inside': `from` is not inside, and leaves no
--                  queue position to take; otherwise the rule's own reason
--     WRONGTYPE    the key is not this kind's
--@ parts
-- No holder, no waiter, no tombstone: the state is empty, so the rule need not read it.
local there = call('EXISTS', K[1], K[2], K[5])
--@ straight
if there == 0 and (F[5] == 'try' or F[5] == 'wait') and F[10] ~= '1' then
  local t = call('TIME')
  local n = t[1] * 1000000 + t[2] - 1577836800000000
  local last = call('SET', K[4], n, 'PX', '7200000', 'GET')
  -- (A text that is no number is another program's, and counts as none.)
  if (tonumber(last or 0) or 0) < n then
    local owner, lease, record = F[1], F[2], F[7]
    kind.install(owner, lease, record, n)
    return n
  end
  -- The clock was set back: the loop sees to that.
  call('SET', K[4], last, 'KEEPTTL')
end
--@ parts
local w = {owner = F[1], lease = F[2], waiter_timeout = F[4], args = F[6], record = F[7], from = F[8] or '',
  arrival = F[9] or '', priority = tonumber(F[11]), most = F[12]}
--@ otherwise
if there == 0 and F[5] ~= 'keep' and F[5] ~= 'share' and F[10] ~= '1' then
  local why = kind.reject and kind.reject(w)
  if why then return {-1, why} end
  local ok, n, value = kind.try_acquire(w)
  if ok then return value and {1, n, w.lease, value} or n end
end
--@ straight
-- Nobody can be admitted, so a newcomer waits, after all that arrived before, as join() would have it.
if F[5] == 'wait' and not F[8] then
  local holder = kind.occupant()
  if type(holder) == 'string' and holder ~= w.owner and string.byte(holder, -1) ~= 126
    and (there == 1 or not call('ZSCORE', K[5], w.owner)) then
    local tail = there > 1 and call('ZRANGE', K[2], '-1', '-1', 'WITHSCORES')[2]
    local t, channel = call('TIME'), inbox(w)
    local us, shard = t[1] * 1000000 + t[2] - 1577836800000000, string.find(F[3], '{', 1, true)
    local listening = redis.pcall('PUBSUB', shard and 'SHARDNUMSUB' or 'NUMSUB', channel)[2]
    local arrival, least, steady, new = string.format('%.0f', us), lifetime(w), us, not tail
    if listening and not (tail and tail + 0 >= us) and call('ZADD', K[2], 'NX', arrival, w.owner) == 1 then
      place(w, us, least, steady, new)
      local ms = math.min(w.waiter_timeout / 3, w.lease / 3, kind.next_expiry(holder))
      return {0, tonumber(call('GET', K[4])) or 0, math.max(1, math.ceil(ms)), arrival, listening == 0 and 1 or nil}
    end
  end
end
--@ parts
if there > 1 and call('ZSCORE', K[5], w.owner) then return {-1, 'over'} end
local left, n, value = kind.load(w.owner)
local full = F[5] == 'wait' and not (left or F[10] == '1' or w.most) and w.arrival == ''
  and kind.is_full and kind.is_full()
-- With a holder, and no other key, there is neither a tombstone nor a waiter.
local alone = there == 1 and type(full) == 'string'
if there == 1 and not alone and call('ZSCORE', K[5], w.owner) then return {-1, 'over'} end
-- The straight path: nobody can be admitted, so a newcomer waits, after all that arrived before. It ends as join()
-- would, without the functions that admit, take another position, or tell a process that keeps the lock.
if full and (full == true or string.byte(full, -1) ~= 126)
  and not (kind.reject or kind.can_barge and kind.can_barge(w)) then
  local tail = not alone and call('ZRANGE', K[2], '-1', '-1', 'WITHSCORES')[2]
  local arrival = fmt('%.0f', ranked(w, now()))
  -- (One that ranks after now has a low priority, or the clock was set back: join() sees to that.)
  if not (tail and tail % CLASS >= now()) and call('ZADD', K[2], 'NX', scored(w, arrival), w.owner) == 1 then
    place(w, now(), lifetime(w), now(), not tail)
    if kind.on_wait then kind.on_wait(w) end
    if kind.on_busy then kind.on_busy(w) end
    return busy(w, arrival, nil, deaf(w))
  end
end
--@ otherwise
-- Nobody waits: so it is for the rule alone to say whether a newcomer may be beside those that are inside.
if F[5] ~= 'keep' and F[5] ~= 'share' and F[10] ~= '1' and not (left or kind.reject and kind.reject(w))
  and not (kind.is_full and kind.is_full()) and call('EXISTS', K[2]) == 0 then
  local ok
  ok, n, value = kind.try_acquire(w)
  if ok then return {1, n, w.lease, value} end
end
--@ parts
if F[5] == 'share' then return share(w, left, n, value) end
-- Redis looks only at the first value returned. The second one tells `all` that the hold was there before.
if left then
  has_waiters(w.owner)
  return {1, n, left, value}, true
end
if F[5] == 'keep' then
  -- A write that cannot grow comes first, so that a full Redis accepts the heartbeat as well.
  call('HDEL', K[3], '')
  local position = call('ZSCORE', K[2], w.owner) and waiting(w.owner)
  if not position then
    admit_waiters()
    return {-1, 'gone'}
  end
  w.heartbeat, w.steady = position.heartbeat, steadily(position)
end
-- Replacing a hold takes no more memory, so a full Redis should accept it, as it accepts a heartbeat.
if F[10] == '1' then call('HDEL', K[3], '') end
if kind.can_barge and kind.can_barge(w) then
  local ok
  ok, n, value = kind.try_acquire(w)
  if ok then
    drop(w.owner)
    if F[10] == '1' then
      kind.release(w.from)
      kind.load('')
    end
    admit_waiters()
    return {1, n, w.lease, value}
  end
end
if F[10] == '1' then
  -- `from` has ended, and another owner may have been inside since: being admitted now would not be in its
  -- place. Nor would being admitted later, by a position that other threads of the process had asked for. So
  -- the request is rejected, and those threads ask again.
  drop(w.owner)
  admit_waiters()
  return {-1, 'not-inside'}
end
if F[5] == 'try' then return try(w) end
return join(w)
