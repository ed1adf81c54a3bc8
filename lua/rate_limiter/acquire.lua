-- rate limiter: counts n more permits if they are available; a rejected request counts nothing. The state is
-- a hash {kind, used, at}. The rate comes with each request, so a different rate finds the same count.
--
-- fixed window: `used` permits were acquired since `at`, the time of the first of them. A window later the
-- count starts from 0 again. smooth: GCRA, as a continuous-state leaky bucket (ITU-T I.371): `used` was in
-- the bucket at `at`; `limit` of it leak out in each window, evenly, and the bucket holds `burst`.
--
-- KEYS 1 the state
-- ARGV 1 n; 0: changes nothing   2 limit   3 window us   4 burst; none: a fixed window
-- ->  {1 | 0, how many more are available now, us until n are, us until none is used any more}

-- A tiny fraction counts as zero: sums of fractions are not exact, and a waiter that waited as long as it
-- was told must be admitted.
local NOTHING = 1e-6
local key = K[1]
local n, limit, window, burst = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, tonumber(ARGV[4])

local known, used, at = unpack(fetch('HMGET', key, 'kind', 'used', 'at'))
if known ~= kind.tag and (known or call('EXISTS', key) == 1) then foreign_key() end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
used, at = tonumber(used) or 0, tonumber(at) or now
-- If the clock was set back, what was used counts as used now, so that nobody has to wait until the clock has
-- come back to where it was.
local set_back = at > now
if set_back then at = now end
if burst then
  used, at = math.max(used - (now - at) * limit / window, 0), now
elseif now - at >= window then
  used, at = 0, now
end

local room = burst or limit
local allowed = used + n <= room + NOTHING
local excess = used + n - room
if allowed then used = used + n end

-- until_free(part) -> us until that much of what is used no longer counts: at most 2^53, which is centuries
local function until_free(part)
  if part <= NOTHING then return 0 end
  return math.ceil(math.min(burst and part * window / limit or at + window - now, 2 ^ 53))
end

local ends = until_free(used)
if set_back or allowed and n > 0 then
  -- A millisecond more, since keys expire at whole milliseconds. For an existing key the expiry is set before
  -- anything else is written: that write cannot grow, so a full Redis accepts it and the rest.
  local ms = math.ceil(ends / 1000) + 1
  if known then call('PEXPIRE', key, ms) end
  call('HSET', key, 'kind', kind.tag, 'used', string.format('%.17g', used), 'at', string.format('%.0f', at))
  if not known then call('PEXPIRE', key, ms) end
end
return {allowed and 1 or 0, math.max(math.floor(room - used + NOTHING), 0), allowed and 0 or until_free(excess), ends}
