-- signal: moves the waiter that has waited longest for a condition to the end of the lock's queue, where a
-- leaving holder will admit it. If it is sent twice, it may move one more waiter. One request moves, looks at
-- or counts a bounded number of waiters.
--
-- ARGV 5 condition   6 'one' | 'all' | 'count' (moves none)   7 from: where an earlier request ended, or ''
-- ->  how many waiters were moved, or are waiting; -1: the owner is not inside
--     {how many, from}: those were not all, and the next request continues from there
--@ parts
if not is_inside(F[1]) then return -1 end
local count = 0
if F[6] == 'count' then
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
until not w or count == 1 and F[6] == 'one'
if count > 0 then wanted(F[1]) end
return more and {count, 'more'} or count
