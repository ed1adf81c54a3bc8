-- gate: callers wait until it is opened; nobody holds it. A hash {kind, open}; without it the gate is closed. The
-- state is its users' own, so that it has no time to live.
kind.tag = 'gate'
kind.whole = true -- nobody renews what it lets in
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

-- There is nothing to give back, to renew or to list: a caller that was let in has passed.
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

-- update('open'), update('close') -> {1}. Setting it twice is as good as once.
function kind.update(what)
  if what == 'again' then what = F[5] end
  open = what == 'open'
  call('HSET', K[1], 'kind', kind.tag, 'open', open and 1 or 0)
  return {1}
end

-- -> {1 if it is open, else 0}
function kind.describe()
  return {open and 1 or 0}
end
