-- acquire: come in, take a place, or keep it alive. Idempotent by owner.
--
-- ARGV 5 how: 'try' | 'wait' | 'keep'   6 args   7 record   8 from   9 arrival or ''
-- ->  {1, number, remaining ms}                                in
--     {0, last number, ms until asking again makes sense, arrival}   busy
--     {-1, why}    'gone': keep found no place; 'over': this owner's tenure has ended;
--                  anything else is the kind's own refusal
--     WRONGKIND    the key is not this kind's
--@ prelude clock kind:refuse,admit
local w = {owner = F[1], lease = F[2], args = F[6], record = F[7]}
-- Nobody holds, nobody waits, nobody is barred: the state is blank, so the rule need not look.
if call('EXISTS', K[1], K[2], K[5]) == 0 and F[5] ~= 'keep' then
  local why = kind.refuse and kind.refuse(w)
  if why then return {-1, why} end
  local ok, n = kind.admit(w)
  if ok then return {1, n, w.lease} end
end
--@ alien kind queue
w.window, w.from = F[4], F[8] or ''
return ask(w, F[5], F[9] or '')
