-- renew: extends the owner's hold to a full lease from now. Never creates a hold.
--
-- ARGV 5 '1': the hold stays for that long, '2': for what is left of it, and is no longer renewed. The owner
--        has a tombstone for as long, and for a minute at least: its process may not know of this, and renew
--        the hold as late as that; and a request of the owner may be in flight
-- ->  remaining ms | -1 not inside | -2 the owner has a tombstone: it is never admitted again, and what it
--     had may stay
--@ parts
if not F[5] and call('ZSCORE', K[5], F[1]) then return -2 end
local left = tonumber(F[5] ~= '2' and kind.renew(F[1], F[2]) or -1)
if not F[5] then return left end
--@ parts
if F[5] == '2' then
  left = kind.load(F[1]) or -1
else
  -- The waiters were told of a later end.
  carry_on()
end
tombstone(F[1], left)
return left
