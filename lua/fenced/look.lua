-- look: what every script over a fenced resource begins with. It takes the resource's key out of the
-- caller's sight, and refuses one that is in use by something else. Nothing is written.
--
-- KEYS 1 the resource: a hash {kind, token, value}, the token in 19 digits. It has no end unless one was
--        asked for: it is its users' state.   2... the caller's
local key = table.remove(KEYS, 1)
local state = redis.call('HMGET', key, 'kind', 'token')
if state[1] ~= 'fenced' and (state[1] or redis.call('EXISTS', key) == 1) then
  local holds = state[1] and 'is a ' .. state[1] .. ', not' or 'does not hold'
  error('WRONGTYPE key "' .. key .. '" ' .. holds .. ' a fenced resource', 0)
end
