-- signal: whoever has waited longest for a condition goes to the end of the lock's queue, and will be let in
-- by whoever leaves. Sent twice, it may move one more.
--
-- ARGV 5 condition   6 'one' | 'all' | 'count' (moves nobody)
-- ->  how many were moved, or wait; -1: the owner is not inside
--@ prelude clock alien queue kind
if not kind.look(F[1]) then return -1 end
local count = 0
if F[6] == 'count' then
  for _, member in ipairs(call('ZRANGEBYLEX', K[6], '[' .. F[5] .. '|', '(' .. F[5] .. '}')) do
    local w = waiting(string.match(member, '[^|]*$'))
    if w and w.condition == F[5] and not silent(w) then count = count + 1 end
  end
  return count
end
repeat
  local w = signal(F[5], behind_all())
  if w and not deaf(w) then
    count = count + 1
  elseif w then
    -- Nobody is there to be granted the lock: the signal is the next one's.
    drop(w.owner)
  end
until not w or count == 1 and F[6] == 'one'
return count
