-- admit: after look.lua, and after the caller's script as the function `run`, which runs only for a token
-- that is not lower than the highest seen, and sees only its own keys and arguments.
--
-- Tokens are texts of 19 digits, which sort as the numbers do: above 2^53 Lua's numbers would take some for
-- each other.
--
-- KEYS 1... the caller's
-- ARGV 1 the token   2... the caller's
-- ->  {1, what the caller's script returned} | {0, the highest token seen}
local token = table.remove(ARGV, 1)
if state[2] and token < state[2] then return {0, state[2]} end
if token ~= state[2] then redis.call('HSET', key, 'kind', 'fenced', 'token', token) end
return {1, run()}
