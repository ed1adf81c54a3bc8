-- renew: the owner's hold lasts a full lease from now. Extends, never creates.
--
-- ->  remaining ms | -1 not inside
--@ prelude clock kind:extend
return tonumber(kind.extend(F[1], F[2]) or -1)
