-- The key is in use by another kind of lock, or by a stranger: refuse it, write nothing.
local function alien()
  error({err = 'WRONGKIND ' .. K[1] .. ' does not hold a ' .. kind.tag})
end
