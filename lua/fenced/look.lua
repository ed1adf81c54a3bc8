-- look: the beginning of every script over a fenced resource. Hides the resource's key from the caller,
-- and rejects a key that is in use by something else. Writes nothing.
--
-- KEYS 1 the resource: a hash {kind, token, value}, the token in 19 digits. It is its users' state, and does
--        not expire unless they asked for that.   2... the caller's
local key = table.remove(KEYS, 1)
local state = redis.call('HMGET', key, 'kind', 'token')
if state[1] ~= 'fenced' and (state[1] or redis.call('EXISTS', key) == 1) then
  local holds = state[1] and 'is a ' .. state[1] .. ', not' or 'does not hold'
  error('WRONGTYPE key "' .. key .. '" ' .. holds .. ' a fenced resource', 0)
end
