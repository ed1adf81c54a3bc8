-- adopt: makes the hold of one owner that of another, with its number and its value, for a full lease.
-- Idempotent by owner. The old owner gets a tombstone, so that a late request of it brings nothing back.
--
-- ARGV 5 the old owner   7 record
-- ->  {1, number, remaining ms, value}
--     {-1, why}    'gone': the old owner is not inside, or has a tombstone: its hold only stays for a while;
--                  'over': this owner has a tombstone
--     WRONGTYPE    the key is not this kind's
--@ parts
local left, n, value = kind.load(F[1])
if left then return {1, n, left, value} end
if has_tombstone(F[1]) then return {-1, 'over'} end
if not has_tombstone(F[5]) then
  n, value = kind.transfer({owner = F[1], lease = F[2], record = F[7]}, F[5])
end
if n then tombstone(F[5]) end
admit_waiters()
return n and {1, n, F[2], value} or {-1, 'gone'}
