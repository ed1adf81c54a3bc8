-- quit: leave, for a waiter for a condition's signal. Takes it out of the lock, the queue and the condition,
-- wherever it is. A signal that it had goes to the next waiter.
--
-- ARGV and reply as leave's without a next owner, but 6 the condition
--@ parts
local was_inside = kind.release(F[1])
local position = not was_inside and waiting(F[1])
if position and position.condition and position.since then
  call('ZREM', K[6], position.condition .. '|' .. position.since .. '|' .. F[1])
  forget_signalled()
end
if not (position and pass_on(position)) then drop(F[1]) end
if was_inside then
  -- It never noticed that it was admitted. It was probably signalled before, but that is no longer known: a
  -- spurious wake-up is better than a lost signal.
  local signalled = {owner = F[1], lease = F[2], waiter_timeout = F[4], args = '', record = '', condition = F[6]}
  pass_on(signalled, behind_all())
end
if F[5] == '1' then tombstone(F[1]) end
kind.load('')
left_to(select(2, admit_waiters()))
-- A signal that was passed on may have put a waiter into the queue.
if position and position.condition then has_waiters(kind.is_full and kind.is_full()) end
return was_inside and 1 or 0
