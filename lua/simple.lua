-- simple: one owner, in a string key as `SET key owner NX PX lease` leaves it.
kind.tag = 'simple lock'
local held -- the owner's text; false if there is none, nil until it is read: no script reads it twice

function kind.load(owner)
  if held == nil then held = fetch('GET', K[1]) end
  if held == owner then
    -- An exclusive lock's last number is its holder's.
    return call('PTTL', K[1]), tonumber(call('GET', K[4])) or number()
  end
end

function kind.try_acquire(w)
  if held then return false end
  local n = number()
  call('SET', K[1], w.owner, 'PX', w.lease)
  held = w.owner
  return true, n
end

function kind.release(owner)
  if held == nil then held = call('GET', K[1]) end
  if held ~= owner then return false end
  call('DEL', K[1])
  held = false
  return true, true
end

function kind.holder()
  return call('GET', K[1])
end

function kind.occupant()
  return redis.pcall('GET', K[1])
end

function kind.install(owner, lease, record, n) -- luacheck: no unused args
  call('SET', K[1], owner, 'PX', lease)
end

function kind.renew(owner, lease)
  return call('GET', K[1]) == owner and call('PEXPIRE', K[1], lease) == 1 and lease
end

function kind.transfer(w, from)
  if held ~= from then return end
  call('PEXPIRE', K[1], w.lease)
  call('SET', K[1], w.owner, 'KEEPTTL')
  held = w.owner
  -- An exclusive lock's last number is its holder's.
  return tonumber(call('GET', K[4])) or number()
end

function kind.is_full()
  return held
end

-- A text that is neither `<client uuid>:<n>` nor `<client uuid>:<n>~` is a foreign holder, which notifies nobody when
-- it releases, and may have no expiry (-1, here as never). So waiters ask every quarter of a second.
function kind.next_expiry(holder)
  return math.min(call('PTTL', K[1]) % 4294967296,
    (not holder or string.match(holder, '^%x+%-%x+%-%x+%-%x+%-%x+():%d+~?$') == 37) and 4294967296 or 240)
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), ''} or {}
end
