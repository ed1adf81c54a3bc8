-- await: acquire, for a waiter for a condition's signal. The waiter gives up its hold for a position in the
-- condition; a signal moves that position into the lock's queue. Idempotent by owner.
--
-- ARGV as acquire's, but 5 how: 'wait' | 'keep' | 'back' (it no longer waits, and wants the lock)
--      8 from: the hold to give up, until that request has had a reply   10 the condition   11 priority
-- ->  as acquire; {2, ...}: the waiter came back without a signal, followed by acquire's reply
--     {-1, 'not-inside'}: there is no hold to give up
--@ parts
local from = F[8] or ''
--@ straight
-- Nearly always the hold is there, and goes to a waiter that has been heard without a gap and is listening; or nobody
-- waits for the lock. This ends as the rest would, which decides about all else, and is left as in leave.lua.
if F[5] == 'wait' and from ~= '' and from ~= F[1] and kind.occupant() == from then
  local head = redis.pcall('ZRANGE', K[2], '0', '0')
  local first = head[1]
  local it = call('HMGET', K[3], F[1], 'signalled', first or '')
  local ok, p = pcall(cmsgpack.unpack, first and it[3])
  ok = first and ok and type(p) == 'table' and p[8] and string.byte(first, -1) ~= 126
  -- If the hold that ends was the last to come by a signal, the next one that does is remembered in its place.
  local known, by
  if ok and p[6] and it[2] then known, by = pcall(cmsgpack.unpack, it[2]) end
  local by_signal = known and type(by) == 'table' and by[1] == from
  local behind = redis.pcall('ZREVRANGEBYLEX', K[6], '(' .. F[10] .. '}', '[' .. F[10] .. '|', 'LIMIT', '0', '1')
  if (ok or not (first or head.err)) and not (behind.err or it[1]) and (by_signal or not it[2])
    and not call('ZSCORE', K[5], F[1]) then
    local t, shard = call('TIME'), string.find(F[3], '{', 1, true)
    local us, own = t[1] * 1000000 + t[2] - 1577836800000000, F[3] .. string.match(F[1], '^[^:]*')
    local channel, n = F[3] .. string.match(first or '', '^[^:]*'), string.format('%.0f', us)
    local listening = redis.pcall('PUBSUB', shard and 'SHARDNUMSUB' or 'NUMSUB', own, channel)
    local last = not first and (call('GET', K[4]) or '0')
    if listening[2] and (not first or listening[4] > 0 and us - p[2] <= p[3] * 1000) then
      last = last or redis.pcall('SET', K[4], n, 'PX', '7200000', 'GET') or '0'
      if (tonumber(last) or us) < us then
        local since = string.format('%016.0f', math.max(us, (string.match(behind[1] or '', '|(%d+)|[^|]*$') or -1) + 1))
        local w = {owner = F[1], lease = F[2], waiter_timeout = F[4], args = F[6], record = F[7], condition = F[10],
          since = since, priority = tonumber(F[11])}
        local least, steady, new = lifetime(w), us, false
        if not first then call('DEL', K[1]) end
        place(w, us, least, steady, new)
        call('ZADD', K[6], '0', F[10] .. '|' .. since .. '|' .. F[1])
        local kept = call('PTTL', K[6])
        if kept < least then call('PEXPIRE', K[6], string.format('%.0f', math.max(kept, 2 * least))) end
        if first then
          local most = p[3] + 0 < 1000 and '1000' or p[3]
          local owner, lease, record = first, p[1] + 0 < most + 0 and p[1] or most, p[5]
          kind.install(owner, lease, record, n)
          call('ZREM', K[2], first)
          call('HDEL', K[3], first)
          if p[6] then call('HSET', K[3], 'signalled', cmsgpack.pack({first, p[6], us / 1000 + lease})) end
          redis.pcall(shard and 'SPUBLISH' or 'PUBLISH', channel, first .. ' in ' .. n .. ' ' .. lease)
        end
        local ms = math.ceil(math.min(w.waiter_timeout, w.lease) / 3)
        return {0, first and us or tonumber(last), ms, since, listening[2] == 0 and 1 or nil}
      end
      if first and type(last) == 'string' then call('SET', K[4], last, 'KEEPTTL') end
    end
  end
end
--@ parts
local w = {owner = F[1], lease = F[2], args = F[6], record = F[7], waiter_timeout = F[4], from = '', arrival = '',
  priority = tonumber(F[11])}
if has_tombstone(w.owner) then return {-1, 'over'} end
--@ parts
local left, n, value = kind.load(w.owner)
if left then return {1, n, left, value} end
if pass_lapsed() then
  local inside = admit_waiters(w.owner)
  if inside then return inside end
  wanted(kind.is_full and kind.is_full())
end
local position = waiting(w.owner)
-- A write that cannot grow comes first, so that a full Redis accepts the rest as well. A release is such a
-- write.
if position or from == '' then call('HDEL', K[3], '') end
w.steady = steadily(position) or now()
local came_back, since = position and position.condition == false, nil
if position and call('ZSCORE', K[2], w.owner) then
  w.condition = position.condition
elseif position and position.condition == F[10] and position.since then
  w.condition = position.condition
  if F[5] ~= 'back' then
    since = position.since
  else
    call('ZREM', K[6], F[10] .. '|' .. position.since .. '|' .. w.owner)
    forget_signalled()
    -- If the lock is free, it needs no other position.
    call('HDEL', K[3], w.owner)
    came_back, w.condition = true, false
  end
elseif from ~= '' then
  if not is_inside(from) then return {-1, 'not-inside'} end
  kind.release(from)
  kind.load('')
  if F[5] ~= 'back' then
    w.condition = F[10]
    since = behind(w)
  else
    came_back, w.condition = true, false
  end
end
if since then
  local answer = stay(w, since)
  -- This waiter itself may be admitted, by the signal of a waiter that died.
  local inside = admit_waiters(w.owner)
  if inside then return inside end
  -- Read only now: a waiter may just have been admitted, and its number is below that of our own grant.
  answer[2] = last()
  return answer
end
-- It was signalled, or came back; or its position was lost, and it joins the queue like any other.
local answer = join(w)
return came_back and {2, unpack(answer)} or answer
