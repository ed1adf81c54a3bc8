-- rate limiter: forgets what was used.
--
-- KEYS 1 the state
-- ->  1 some was used | 0
local TAG = 'rate limiter'
local key, call = KEYS[1], redis.call
local known = call('HGET', key, 'kind')
if known ~= TAG and (known or call('EXISTS', key) == 1) then
  local holds = known and 'is a ' .. known .. ', not' or 'does not hold'
  error('WRONGTYPE key "' .. key .. '" ' .. holds .. ' a ' .. TAG, 0)
end
return call('DEL', key)
