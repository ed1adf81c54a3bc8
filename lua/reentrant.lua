-- reentrant: one owner, in a hash {kind, owner, number, record}. The hold count of the owner's thread is not
-- stored here: the process counts it.
kind.tag = 'reentrant lock'
-- The owner and its number, as last read or written: false if there is none, nil until they are read. No
-- script reads them twice.
local held, granted

function kind.load(owner)
  if held == nil then
    local state = fetch('HMGET', K[1], 'kind', 'owner', 'number')
    held, granted = state[2], tonumber(state[3])
    if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  end
  if held == owner then return call('PTTL', K[1]), granted end
end

function kind.try_acquire(w)
  if held then return false end
  local n = number()
  call('HSET', K[1], 'kind', kind.tag, 'owner', w.owner, 'number', string.format('%.0f', n), 'record', w.record)
  call('PEXPIRE', K[1], w.lease)
  held, granted = w.owner, n
  return true, n
end

function kind.release(owner)
  local inside = held
  if inside == nil then inside = call('HGET', K[1], 'owner') end
  if inside ~= owner then return false end
  call('DEL', K[1])
  held = false
  return true, true
end

function kind.holder()
  return call('HGET', K[1], 'owner')
end

function kind.occupant()
  return redis.pcall('HGET', K[1], 'kind') == 'reentrant lock' and call('HGET', K[1], 'owner')
end

function kind.install(owner, lease, record, n)
  call('HSET', K[1], 'kind', 'reentrant lock', 'owner', owner, 'number', n, 'record', record)
  call('PEXPIRE', K[1], lease)
end

function kind.renew(owner, lease)
  return call('HGET', K[1], 'owner') == owner and call('PEXPIRE', K[1], lease) == 1 and lease
end

function kind.transfer(w, from)
  if held ~= from then return end
  call('PEXPIRE', K[1], w.lease)
  call('HSET', K[1], 'owner', w.owner, 'record', w.record)
  held = w.owner
  return granted
end

function kind.is_full()
  return held
end

-- An exclusive lock's last number is its holder's.
function kind.last()
  return held and granted
end

-- (Without an expiry, in a long time.)
function kind.next_expiry(holder) -- luacheck: no unused args
  return call('PTTL', K[1]) % 4294967296
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), call('HGET', K[1], 'record')} or {}
end
