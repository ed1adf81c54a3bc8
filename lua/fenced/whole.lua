-- whole: follows look.lua. Operations on the whole resource, whatever its tokens.
--
-- ARGV 1 'get' | 'expire' | 'delete'   2 expire: in how many ms
-- ->  get: {the highest token seen or nil, value or nil} | expire, delete: 1, or 0 if there is no resource
if ARGV[1] == 'get' then return {state[2], redis.call('HGET', key, 'value')} end
if ARGV[1] == 'expire' then return redis.call('PEXPIRE', key, ARGV[2]) end
return redis.call('DEL', key)
