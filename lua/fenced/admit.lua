-- admit: follows look.lua and the caller's script, which is the function `run`. Runs that function only for a
-- token not lower than the highest seen; the function sees only its own keys and arguments.
--
-- Tokens are text of 19 digits, which sorts as the numbers do: above 2^53, Lua's numbers could not tell some
-- of them apart.
--
-- KEYS 1... the caller's
-- ARGV 1 the token   2... the caller's
-- ->  {1, what the caller's script returned} | {0, the highest token seen}
local token = table.remove(ARGV, 1)
if state[2] and token < state[2] then return {0, state[2]} end
if token ~= state[2] then redis.call('HSET', key, 'kind', 'fenced', 'token', token) end
return {1, run()}
