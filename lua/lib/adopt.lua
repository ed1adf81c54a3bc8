-- adopt: the hold of one owner becomes that of another, with its number and its value, for a full lease.
-- Idempotent by owner. The old one is barred: a late request of it brings nothing back.
--
-- ARGV 5 the old owner   7 record
-- ->  {1, number, remaining ms, value}
--     {-1, why}    'gone': the old owner is not inside; 'over': this owner's tenure has ended
--     WRONGTYPE    the key is not this kind's
--@ prelude clock alien queue join kind
local left, n, value = kind.look(F[1])
if left then return {1, n, left, value} end
if barred(F[1]) then return {-1, 'over'} end
n, value = kind.rename({owner = F[1], lease = F[2], record = F[7]}, F[5])
if n then bar(F[5]) end
settle()
return n and {1, n, F[2], value} or {-1, 'gone'}
