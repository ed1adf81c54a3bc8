-- renew: the owner's hold lasts a full lease from now. Extends, never creates.
--
-- ->  {1, remaining ms} | {0} not inside
--@ prelude clock kind:extend
local left = kind.extend(F[1], F[2])
return left and {1, left} or {0}
