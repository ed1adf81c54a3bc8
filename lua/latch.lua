-- latch: a count in a hash {kind, count, by, bound}. At 0 every caller passes; it never has holders. Without
-- a count there is no key, and no waiters.
kind.tag = 'count-down latch'
kind.whole = true -- what it admits is not renewed
local known, count, by, bound -- as last read or written
local deleted -- by this script

function kind.load()
  local state = fetch('HMGET', K[1], 'kind', 'count', 'by', 'bound')
  known, count, by, bound = state[1], tonumber(state[2]), state[3], tonumber(state[4])
  if known ~= kind.tag and (known or call('EXISTS', K[1]) == 1) then foreign_key() end
end

-- A caller that arrived before the count was set waited for an earlier count. So all of them learn of a
-- reset, including those that miss the message.
function kind.reject(w)
  local arrival = tonumber(w.arrival or '')
  if count then
    arrival = bound and (arrival or tonumber(call('ZSCORE', K[2], w.owner) or nil))
    return arrival and arrival <= bound and 'broken-it-was-reset' or nil
  end
  if arrival or w.heartbeat then
    return deleted and 'broken-it-was-deleted' or 'broken-its-count-was-deleted-or-expired'
  end
  return 'this-latch-has-no-count:-try_set_count-comes-first'
end

function kind.try_acquire()
  if count ~= 0 then return false end
  return true, number()
end

-- At 0 nobody is in anyone's way. Later arrivals are after the bound, even if the clock was set back.
function kind.can_barge(w)
  if w.arrival == '' and bound and now() <= bound then w.arrival = fmt('%.0f', bound + 1) end
  return count == 0 and not kind.reject(w)
end

function kind.release()
  return false
end

function kind.renew()
end

function kind.next_expiry()
end

function kind.holders()
  return {}
end

function kind.inspect()
  return {count or -1}
end

-- 'set' n, if there is no count -> {1 | 0}; 'down' -> {count, or -1}; 'reset' n, 'delete' -> {1 | 0 there was
-- none}; 'expire' ms -> {1 | 0}. Waiters for a count that no longer exists are notified that it is broken.
function kind.update(what, a)
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], '')
  local mark = 'deleted|' .. F[1]
  if what == 'again' then
    if F[5] == 'down' then return {count or -1} end
    return {(F[5] == 'delete' and call('ZSCORE', K[5], mark) or by == F[1] or F[5] == 'expire' and count) and 1 or 0}
  end
  if what == 'down' then
    if count and count > 0 then count = call('HINCRBY', K[1], 'count', -1) end
    return {count or -1}
  end
  if what == 'expire' then return {count and call('PEXPIRE', K[1], a) or 0} end
  if what == 'set' and count or what == 'delete' and not count then return {0} end
  bound = math.max(now(), (call('ZRANGE', K[2], -1, -1, 'WITHSCORES')[2] or 0) + 0)
  if what == 'delete' then
    count, deleted = nil, true
    call('DEL', K[1])
    call('ZADD', K[5], fmt('%.0f', now() / 1000 + 60000), mark)
  else
    count = tonumber(a)
    call('HSET', K[1], 'kind', kind.tag, 'count', a, 'by', F[1], 'bound', fmt('%.0f', bound))
    call('PERSIST', K[1])
  end
  return {1}
end
