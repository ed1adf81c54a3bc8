-- The beginning of both scripts of a rate limiter; followed by `lib/foreign.lua`, and then by one of them.
local K, call = KEYS, redis.call
local kind = {tag = 'rate limiter'}
