-- bulkhead: at most w.args holders. A zset owner -> end of its lease, in server time.
kind.tag = 'bulkhead'
local inside

function kind.load(owner)
  if call('TYPE', K[1]).ok ~= 'zset' and call('EXISTS', K[1]) == 1 then foreign_key() end
  call('ZREMRANGEBYSCORE', K[1], '-inf', string.format('%.0f', now() / 1000))
  inside = call('ZCARD', K[1])
  local ends = call('ZSCORE', K[1], owner)
  if ends then return math.ceil(ends - now() / 1000), tonumber(call('GET', K[4]) or 0) end
end

function kind.try_acquire(w)
  if (inside or 0) >= tonumber(w.args) then return false end
  local n = number()
  call('ZADD', K[1], string.format('%.0f', now() / 1000 + w.lease), w.owner)
  call('PEXPIRE', K[1], math.max(w.lease, call('PTTL', K[1])))
  inside = (inside or 0) + 1
  return true, n
end

function kind.release(owner)
  return call('ZREM', K[1], owner) == 1
end

function kind.renew(owner, lease)
  -- A write that cannot grow comes first, so that a full Redis accepts the next one.
  call('ZREMRANGEBYSCORE', K[1], '-inf', string.format('%.0f', now() / 1000))
  local ends = call('ZSCORE', K[1], owner)
  if not ends or tonumber(ends) <= now() / 1000 then return end
  call('ZADD', K[1], 'XX', string.format('%.0f', now() / 1000 + lease), owner)
  call('PEXPIRE', K[1], math.max(lease, call('PTTL', K[1])))
  return lease
end

function kind.next_expiry()
  local first = call('ZRANGE', K[1], 0, 0, 'WITHSCORES')[2]
  return first and math.max(1, first - now() / 1000)
end

function kind.holders()
  local all = call('ZRANGE', K[1], 0, -1, 'WITHSCORES')
  local list = {}
  for i = 1, #all, 2 do
    list[#list + 1] = all[i]
    list[#list + 1] = math.ceil(all[i + 1] - now() / 1000)
    list[#list + 1] = ''
  end
  return list
end
