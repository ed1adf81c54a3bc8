-- await: acquire, for a waiter for a condition's signal. The waiter gives up its hold for a position in the
-- condition; a signal moves that position into the lock's queue. Idempotent by owner.
--
-- ARGV as acquire's, but 5 how: 'wait' | 'keep' | 'back' (it no longer waits, and wants the lock)
--      8 from: the hold to give up, until that request has had a reply   10 the condition   11 priority
-- ->  as acquire; {2, ...}: the waiter came back without a signal, followed by acquire's reply
--     {-1, 'not-inside'}: there is no hold to give up
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
if position or F[8] == '' then call('HDEL', K[3], '') end
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
    -- If the lock is free, it needs no other position.
    call('HDEL', K[3], w.owner)
    came_back, w.condition = true, false
  end
elseif F[8] ~= '' then
  if not is_inside(F[8]) then return {-1, 'not-inside'} end
  kind.release(F[8])
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
