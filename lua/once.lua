-- once: an attempt, in a hash {kind, owner, number, record} for as long as its lease; or the outcome of an
-- attempt, in a hash {kind, state, answer, by, number} for as long as its users asked: the state is 'done' or
-- 'failed', `by` the owner of the attempt. Once there is an outcome, nobody is admitted: waiters and
-- newcomers are rejected, and read the outcome.
kind.tag = 'idempotency key'
local held, state -- the owner of the attempt, and the state of its outcome: as last read or written

function kind.load(owner)
  local read = fetch('HMGET', K[1], 'kind', 'owner', 'state', 'number')
  if read[1] ~= kind.tag and (read[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  held, state = read[2], read[3]
  if held == owner then return call('PTTL', K[1]), tonumber(read[4]) end
end

function kind.reject()
  return state and 'conflict-it-is-' .. state or nil
end

function kind.try_acquire(w)
  if held or state then return false end
  local n = number()
  call('HSET', K[1], 'kind', kind.tag, 'owner', w.owner, 'number', string.format('%.0f', n), 'record', w.record)
  call('PEXPIRE', K[1], w.lease)
  held = w.owner
  return true, n
end

function kind.release(owner)
  return call('HGET', K[1], 'owner') == owner and call('DEL', K[1]) == 1, true
end

function kind.renew(owner, lease)
  return call('HGET', K[1], 'owner') == owner and call('PEXPIRE', K[1], lease) == 1 and lease
end

function kind.is_full()
  return held
end

-- Every request that meets a kept outcome is rejected at once, so nobody waits for it to expire.
function kind.next_expiry()
  local ms = held and call('PTTL', K[1])
  return ms and ms >= 0 and ms
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), call('HGET', K[1], 'record')} or {}
end

-- {'done' | 'failed', answer} | {'begun' | ''}
function kind.inspect()
  if state then return {state, call('HGET', K[1], 'answer')} end
  return {held and 'begun' or ''}
end

-- 'done' | 'failed', ms, answer: keeps the outcome of the attempt of the owner F[1] for that long -> {1} |
-- {0} it has no attempt. 'forget': deletes the kept outcome -> {1} | {0} there is none
function kind.update(what, ms, answer)
  if what == 'again' then
    if F[5] == 'forget' then return {state and 0 or 1} end
    return {call('HGET', K[1], 'by') == F[1] and 1 or 0}
  end
  if what == 'forget' then
    if not state then return {0} end
    state = nil
    return {call('DEL', K[1])}
  end
  if held ~= F[1] then return {0} end
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], 'owner', 'record')
  call('HSET', K[1], 'state', what, 'answer', answer, 'by', F[1])
  call('PEXPIRE', K[1], ms)
  held, state = nil, what
  return {1}
end
