-- own once: an attempt, in a hash {kind, owner, number, record} for as long as its lease; or the answer of one,
-- in a hash {kind, answer, by} for as long as it is kept. Whoever comes then is rejected, and reads the answer.
kind.tag = 'own once'
local held, answer -- the owner of the attempt, and the answer: as last read or written

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'owner', 'answer', 'number')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  held, answer = state[2], state[3]
  if held == owner then return call('PTTL', K[1]), tonumber(state[4]) end
end

function kind.reject()
  return answer and 'conflict-it-is-done' or nil
end

function kind.try_acquire(w)
  if held or answer then return false end
  local n = number()
  call('HSET', K[1], 'kind', kind.tag, 'owner', w.owner, 'number', fmt('%.0f', n), 'record', w.record)
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

function kind.next_expiry()
  local ms = held and call('PTTL', K[1])
  return ms and ms >= 0 and ms
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), call('HGET', K[1], 'record')} or {}
end

-- {answer} | {} there is none
function kind.inspect()
  return {answer}
end

-- conclude('done', answer, ms), by the owner F[1] -> {1} | {0} it has no attempt
function kind.update(what, text, ms)
  if what == 'again' then return {call('HGET', K[1], 'by') == F[1] and 1 or 0} end
  if held ~= F[1] then return {0} end
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], 'owner', 'record')
  call('HSET', K[1], 'answer', text, 'by', F[1])
  call('PEXPIRE', K[1], ms)
  held, answer = nil, text
  return {1}
end
