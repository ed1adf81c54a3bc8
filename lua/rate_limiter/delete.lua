-- rate limiter: forgets what was used.
--
-- KEYS 1 the state
-- ->  1 some permits were used | 0 none were
local known = fetch('HGET', K[1], 'kind')
if known ~= kind.tag and (known or call('EXISTS', K[1]) == 1) then foreign_key() end
return call('DEL', K[1])
