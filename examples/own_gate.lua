-- gate: callers wait until it is opened; no caller holds it. A hash {kind, open}; without it the gate is
-- closed. The state is user state, so it has no time to live.
kind.tag = 'gate'
kind.whole = true -- its grants are never renewed
local open -- as last read or written

function kind.load()
  local state = fetch('HMGET', K[1], 'kind', 'open')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  open = state[2] == '1'
end

function kind.try_acquire()
  if not open then return false end
  return true, number()
end

-- There is nothing to release, to renew or to list: an admitted caller has passed.
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

function kind.is_full()
  return not open
end

-- update('open'), update('close') -> {1}. Idempotent.
function kind.update(what)
  if what == 'again' then what = F[5] end
  open = what == 'open'
  call('HSET', K[1], 'kind', kind.tag, 'open', open and 1 or 0)
  return {1}
end

-- -> {1 if it is open, else 0}
function kind.inspect()
  return {open and 1 or 0}
end
