-- leave: out of the lock and out of the queue, whichever the owner is in; the next one comes
-- in; and, in the same trip, the ask of `next`, another owner of the same process.
--
-- ARGV 5 unsettled: '1' when a request of this owner may still be on its way, so that it is
--        barred for a minute   6 args   7 record   8 next owner or ''
-- ->  1 was inside | 0; for a next owner {1 | 0, 1 | 0 | -1, ...}: behind it what acquire answers
--@ prelude kind:dismiss
local was_inside, was_last = kind.dismiss(F[1])
was_inside, was_last = was_inside and 1 or 0, was_inside and was_last
local first = call('ZRANGE', K[2], 0, 0)[1]
if not F[5] and not first then return was_inside end
--@ clock alien queue kind:look,admit,refuse,full,left,class
if was_inside == 0 then
  -- Who is inside has no place. Begins with a write that cannot grow, as dismiss did: after it
  -- a full Redis takes the rest.
  local w = kind.left and waiting(F[1])
  if w then w.score = call('ZSCORE', K[2], F[1]) end
  drop(F[1])
  first = nil
  if w then kind.left(w, 'left') end
end
if F[5] == '1' then bar(F[1]) end
if not F[8] then
  if not was_last then kind.look('') end
  settle(nil, first)
  return was_inside
end
--@ join kind:more,soon,last,waits
local left, n, value, answer
if not was_last then left, n, value = kind.look(F[8]) end
answer = settle(F[8], first)
if left then return {was_inside, 1, n, left, value} end
if barred(F[8]) then return {was_inside, -1, 'over'} end
local next = {owner = F[8], lease = F[2], window = F[4], args = F[6], record = F[7], from = '',
  arrival = ''}
return {was_inside, unpack(answer or join(next))}
