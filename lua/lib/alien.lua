-- The key is in use by another kind of lock, or by a stranger: refuse it, write nothing. (Plain
-- text, because servers before 7.0 cannot raise anything else.)
local function alien()
  error('WRONGKIND ' .. K[1] .. ' does not hold a ' .. kind.tag, 0)
end
