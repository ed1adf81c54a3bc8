-- latch: a count in a hash {kind, count, by, bound, how}. At 0 everybody passes; nobody is ever inside.
-- Without a count the hash is a note that this name is a latch's: while somebody waits for the count to be
-- set, and for a minute after it was deleted.
kind.tag = 'count-down latch'
local known, count, by, bound, how -- as last read or written

function kind.look()
  local state = call('HMGET', K[1], 'kind', 'count', 'by', 'bound', 'how')
  known, count, by, bound, how = state[1], tonumber(state[2]), state[3], tonumber(state[4]), state[5]
  if known ~= kind.tag and (known or call('EXISTS', K[1]) == 1) then alien() end
end

-- Who came before the latch was set anew or deleted has its place from before the bound. It was told; this is
-- for those that did not hear of it.
function kind.refuse(w)
  if bound and (w.arrival or '') ~= '' and w.arrival + 0 <= bound then return 'broken-it-was-' .. how end
end

function kind.admit()
  if count ~= 0 then return false end
  return true, number()
end

-- Nobody passes anybody: each ask sees to it that no other kind takes the name while there is no count.
function kind.passes(w)
  -- Who comes after the bound is behind it, also where the clock was set back.
  if w.arrival == '' and bound and now() <= bound then w.arrival = fmt('%.0f', bound + 1) end
  if count then return false end
  local ms = math.max(60000, 2 * F[4])
  if not known then call('HSET', K[1], 'kind', kind.tag) end
  if call('PTTL', K[1]) < ms / 2 then call('PEXPIRE', K[1], ms) end
  return false
end

function kind.dismiss()
  return false
end

function kind.extend()
end

function kind.soon()
end

function kind.holders()
  return {}
end

function kind.state()
  return {count or -1}
end

-- 'set' n, if there is no count -> {1 | 0}; 'down' -> {count, or -1}; 'reset' n, 'delete' -> {1 | 0 there was
-- none}: who waits is told that it is broken; 'expire' ms -> {1 | 0}.
function kind.change(what, a)
  -- A write that cannot grow comes first: after it a full Redis takes the others.
  call('HDEL', K[1], '')
  if what == 'again' then
    if F[5] == 'down' then return {count or -1} end
    return {(by == F[1] or F[5] == 'expire' and count) and 1 or 0}
  end
  if what == 'down' then
    if count and count > 0 then count = call('HINCRBY', K[1], 'count', -1) end
    return {count or -1}
  end
  if what == 'expire' then return {count and call('PEXPIRE', K[1], a) or 0} end
  if what == 'set' and count or what == 'delete' and not count then return {0} end
  if what ~= 'set' then
    local waits = call('ZRANGE', K[2], 0, -1)
    how = what == 'delete' and 'deleted' or 'set-anew'
    bound = fmt('%.0f', math.max(now(), (call('ZRANGE', K[2], -1, -1, 'WITHSCORES')[2] or 0) + 0))
    call('HSET', K[1], 'kind', kind.tag, 'bound', bound, 'how', how)
    for _, owner in ipairs(waits) do
      local w = waiting(owner)
      drop(owner)
      if w then tell(w, 'no:broken-it-was-' .. how) end
    end
  end
  if what == 'delete' then
    call('HDEL', K[1], 'count')
    call('HSET', K[1], 'by', F[1])
    call('PEXPIRE', K[1], math.max(60000, 2 * F[4]))
    count = nil
  else
    call('HSET', K[1], 'kind', kind.tag, 'count', a, 'by', F[1])
    call('PERSIST', K[1])
    count = tonumber(a)
  end
  return {1}
end
