-- renew: the owner's hold lasts a full lease from now. Extends, never creates.
--
-- ARGV 5 '1': it stays for that long and is no longer renewed. It has a tombstone for a minute, as a request of it
--        may still be on its way
-- ->  remaining ms | -1 not inside | -2 it has a tombstone: it comes in never again, and what it had may stay
--@ parts
if not F[5] and call('ZSCORE', K[5], F[1]) then return -2 end
local left = tonumber(kind.renew(F[1], F[2]) or -1)
if not F[5] then return left end
--@ parts
tombstone(F[1])
return left
