-- The beginning of both scripts of a rate limiter; `lib/foreign.lua` stands behind it, and then one of them.
local K, call = KEYS, redis.call
local kind = {tag = 'rate limiter'}
