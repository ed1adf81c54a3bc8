-- idempotency key: an attempt, in a hash {kind, owner, number, record} for as long as its lease; or what came of one,
-- in a hash {kind, state, answer, by, number} for as long as its users said: the state is 'done' or 'failed', `by` the
-- owner of the attempt. A finished one admits nobody: a waiter and a newcomer are rejected, and read the outcome.
kind.tag = 'idempotency key'
local held, state -- the owner of the attempt, what came of it: as last read or written

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

-- What is kept is in nobody's way: nobody waits for its end.
function kind.next_expiry()
  local ms = held and call('PTTL', K[1])
  return ms and ms >= 0 and ms
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), call('HGET', K[1], 'record')} or {}
end

-- {'done' | 'failed', answer} | {'begun' | ''}
function kind.describe()
  if state then return {state, call('HGET', K[1], 'answer')} end
  return {held and 'begun' or ''}
end

-- 'done' | 'failed', ms, answer: what came of the attempt of the owner F[1], kept for so long -> {1} | {0} it has none.
-- 'forget': what is kept is deleted -> {1} | {0} there is none
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
  -- A write that cannot grow comes first: after it a full Redis accepts the others.
  call('HDEL', K[1], 'owner', 'record')
  call('HSET', K[1], 'state', what, 'answer', answer, 'by', F[1])
  call('PEXPIRE', K[1], ms)
  held, state = nil, what
  return {1}
end
