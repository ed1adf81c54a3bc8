-- redisson: one owner, in a hash as Redisson's RLock keeps it: {<client uuid>:<n> = count}. A hold of ours
-- has one more field, `rc` = number, token (`-`: none) and record. Redisson looks only at its own field, at
-- the key's existence and at its expiry; a holder without `rc` is one of Redisson's. Like Redisson, a release
-- publishes 0 to `redisson_lock__channel:{key}`; while the holder is Redisson's, waiters are told to listen
-- there.
--
-- Redisson's waiters have no queue position: if one of its clients receives the message of a release, the
-- lock is left to Redisson for TURN ms.
--
-- w.args is 'fenced' for RFencedLock's counter, `redisson_lock_token:{key}`, which each grant increments.
kind.tag = 'Redisson lock'
local TURN = 25
local held, ours -- the owner, and `rc` if the hold is one of ours; as last read or written
local turn -- the end of Redisson's turn, in ms

-- beside(prefix) -> Redisson's name of a channel or a key that belongs to the lock. It is in the lock's slot.
local function marker(prefix)
  return prefix .. ':' .. (string.find(K[1], '{', 1, true) and K[1] or '{' .. K[1] .. '}')
end

local function is_owner(text)
  return string.match(text, '^%x+%-%x+%-%x+%-%x+%-%x+():%d+$') == 37
end

-- given() -> number and token of our hold
local function given()
  local n, token = string.match(ours, '^(%d+) (%S+)')
  return tonumber(n), token ~= '-' and token or nil
end

function kind.load(owner)
  local size = fetch('HLEN', K[1])
  held, ours = nil, nil
  local state = size > 0 and size < 3 and call('HGETALL', K[1]) or {}
  for i = 1, #state, 2 do
    if state[i] == 'rc' then ours = state[i + 1] else held = state[i] end
  end
  -- A hash of another kind: of a map, or of an RReadWriteLock.
  if size > 0 and (not held or size ~= (ours and 2 or 1) or not (ours or is_owner(held))) then foreign_key() end
  if not held then
    turn = their_turn()
  elseif not ours then
    call('ZREM', K[5], 'turn') -- Redisson has acquired the lock.
  elseif held == owner then
    return call('PTTL', K[1]), given()
  end
end

-- hold(w, n, token): makes w the holder
local function hold(w, n, token)
  held, ours = w.owner, string.format('%.0f %s %s', n, token or '-', w.record)
  call('HSET', K[1], w.owner, 1, 'rc', ours)
end

function kind.try_acquire(w)
  if held or turn then return false end
  local n = number()
  local token = w.args == 'fenced' and string.format('%.0f', call('INCR', marker('redisson_lock_token'))) or nil
  hold(w, n, token)
  call('PEXPIRE', K[1], w.lease)
  return true, n, token
end

-- Tells Redisson's clients that the lock is free, and leaves it to them for a moment if there are any.
function kind.release(owner)
  if call('HEXISTS', K[1], owner) ~= 1 or call('DEL', K[1]) ~= 1 then return false end
  held, ours = nil, nil
  turn = announce_free(marker('redisson_lock__channel'), '0', TURN, 0)
  return true, true
end

function kind.renew(owner, lease)
  return call('HEXISTS', K[1], owner) == 1 and call('PEXPIRE', K[1], lease) == 1 and lease
end

function kind.transfer(w, from)
  if held ~= from or not ours then return end
  local n, token = given()
  call('PEXPIRE', K[1], w.lease)
  call('HDEL', K[1], from)
  hold(w, n, token)
  return n, token
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
  if turn or held and not ours then
    tell({owner = w.owner, lease = w.waiter_timeout}, 'listen', 0, marker('redisson_lock__channel'))
  end
end

function kind.holders()
  -- (A holder of Redisson's has neither a record nor a number of ours.)
  return held and {held, call('PTTL', K[1]), ours and string.match(ours, '^%d+ %S+ (.*)') or '?'} or {}
end

-- -> {the token of our hold, for a fenced lock}
function kind.inspect()
  local token = ours and select(2, given())
  return token and {token} or {}
end
