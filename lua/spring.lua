-- spring: one owner, in a string key as Spring Integration's RedisLockRegistry leaves it: the client's id at
-- `<registry>:<key>`. A hold of ours is the owner and, after a space, the registry's channel, to which a
-- release publishes the key, as a registry in its PUB_SUB_LOCK mode does. While the holder is one of
-- Spring's, waiters are told to listen there.
--
-- All locks of the registry share the channel: a client of Spring's that listens need not be waiting for this
-- lock. So after a release the lock is left to Spring for TURN ms, and then not again before REST ms have passed.
--
-- w.args is the channel.
kind.tag = 'Spring lock'
local TURN, REST = 25, 100
local held, channel -- the owner, and the channel if the hold is one of ours; as last read or written
local turn -- the end of Spring's turn, in ms

-- read(value): takes `held` and `channel` from what is at the key
local function read(value)
  held, channel = string.match(value or '', '^(%x+%-%x+%-%x+%-%x+%-%x+:%d+~?) (.+)$')
  held = held or value
end

-- write(owner, ...): makes the owner the holder
local function write(owner, ...)
  held = owner
  call('SET', K[1], owner .. ' ' .. channel, ...)
end

function kind.load(owner)
  read(fetch('GET', K[1]))
  if not held then
    turn = their_turn()
  elseif held == owner then
    -- An exclusive lock's last number is its holder's.
    return call('PTTL', K[1]), tonumber(call('GET', K[4])) or number()
  end
end

function kind.try_acquire(w)
  if held or turn then return false end
  local n = number()
  channel = w.args
  write(w.owner, 'PX', w.lease)
  return true, n
end

function kind.release(owner)
  read(call('GET', K[1]))
  if held ~= owner then return false end
  call('DEL', K[1])
  held = nil
  turn = channel and announce_free(channel, K[1], TURN, REST)
  return true, true
end

function kind.renew(owner, lease)
  read(call('GET', K[1]))
  return held == owner and call('PEXPIRE', K[1], lease) == 1 and lease
end

function kind.transfer(w, from)
  if held ~= from or not channel then return end
  call('PEXPIRE', K[1], w.lease)
  write(w.owner, 'KEEPTTL')
  return tonumber(call('GET', K[4])) or number()
end

function kind.is_full()
  return held or turn and true
end

function kind.next_expiry()
  if not held then return turn and math.max(1, turn - now() / 1000) end
  local ms = call('PTTL', K[1])
  return ms >= 0 and ms
end

function kind.on_busy(w)
  if turn or held and not channel then
    tell({owner = w.owner, lease = w.waiter_timeout}, 'listen', 0, w.args)
  end
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), channel and '' or '?'} or {}
end
