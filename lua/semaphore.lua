-- semaphore: a number of permits, some of them acquired. A hash {kind, permits, used, first, none}, and for
-- each owner {end ms, number, permits, record}, recognized by the colon in its id; K[6] has the owners by
-- their expiry. The permits are their users' state: the keys do not expire unless that was asked for.
kind.tag = 'semaphore'
-- As last read or written: the number of all permits, the number acquired, the time in ms when the first
-- lease expires, and whether there were no permits on purpose: then no request is for too many, as more will
-- be added.
local total, used, soon, none
local late -- more holds have expired than this script removes
local changed -- the number of permits changed since the waiters were last checked against it
local page -- as last read: {owner, {end ms, number, permits, record}, ...} of the holders

-- first_end() -> the time in ms when the first lease expires
local function first_end()
  return tonumber(call('ZRANGE', K[6], 0, 0, 'WITHSCORES')[2])
end

-- install(owner, hold, ends): writes a hold that expires then. (Not every script has now() before this.)
local function install(owner, hold, ends)
  hold[1] = math.floor(ends)
  soon = math.min(soon or hold[1], hold[1])
  call('HSET', K[1], 'used', used, owner, cmsgpack.pack(hold))
  call('ZADD', K[6], string.format('%.0f', hold[1]), owner)
  local ttl = call('PTTL', K[1])
  if ttl >= 0 then call('PEXPIRE', K[6], ttl) end
end

-- forget(ms, owner): removes holds that have expired by then: this owner's and a hundred others; the rest is
-- left to the next script.
local function forget(ms, owner)
  local now_on = string.format('%.0f', math.floor(ms))
  local lapsed = call('ZRANGE', K[6], '-inf', now_on, 'BYSCORE', 'LIMIT', 0, 100)
  lapsed[#lapsed + 1] = owner
  local held, out = call('HMGET', K[1], unpack(lapsed)), {}
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], unpack(lapsed))
  call('ZREM', K[6], unpack(lapsed))
  for i, it in ipairs(lapsed) do
    if held[i] and not out[it] then used = used - cmsgpack.unpack(held[i])[3] end
    out[it] = true
  end
  call('HSET', K[1], 'used', used)
  soon = first_end()
  late = soon and soon <= ms
end

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'permits', 'used', owner, 'none')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  total, used, none = tonumber(state[2]), tonumber(state[3]) or 0, state[5] == '1'
  soon, late = nil, false
  if used == 0 then return end
  soon = first_end()
  local ms, hold = now() / 1000, state[4] and cmsgpack.unpack(state[4])
  local over = hold and hold[1] <= ms
  if over or soon and soon <= ms then forget(ms, over and owner or '') end
  if hold and not over then return math.ceil(hold[1] - ms), hold[2], hold[3] end
end

function kind.more()
  return late
end

function kind.reject(w)
  if w.args == 'all' then return end
  if not total then return 'it-has-no-permits:-set_permits-comes-first' end
  if not none and tonumber(w.args) > total then return string.format('it-has-%.0f-permits-in-all', total) end
end

-- For 'all', the request is for all available permits, at least one.
function kind.try_acquire(w)
  local free = total and total - used or 0
  local wanted = tonumber(w.args) or math.max(free, 1)
  if wanted > free then return false end
  local n = number()
  used = used + wanted
  install(w.owner, {0, n, wanted, w.record}, now() / 1000 + w.lease)
  return true, n, wanted
end

function kind.release(owner)
  local state = call('HMGET', K[1], 'used', owner)
  if not state[2] then return false end
  call('HDEL', K[1], owner)
  call('ZREM', K[6], owner)
  used = state[1] - cmsgpack.unpack(state[2])[3]
  call('HSET', K[1], 'used', used)
  return true
end

function kind.renew(owner, lease)
  local state = call('HMGET', K[1], 'used', owner)
  local hold = state[2] and cmsgpack.unpack(state[2])
  if not hold or hold[1] <= now() / 1000 then return end
  -- A write that cannot grow comes first, so that a full Redis accepts the next one.
  call('HDEL', K[1], '')
  used = state[1]
  install(owner, hold, now() / 1000 + lease)
  return lease
end

function kind.transfer(w, from)
  local hold = call('HGET', K[1], from)
  hold = hold and cmsgpack.unpack(hold)
  if not hold or hold[1] <= now() / 1000 then return end
  call('HDEL', K[1], from)
  call('ZREM', K[6], from)
  hold[4] = w.record
  install(w.owner, hold, now() / 1000 + w.lease)
  return hold[2], hold[3]
end

-- After a change the queue is read even if no permit is left, as its first waiters may have to be rejected.
function kind.is_full()
  return total and used >= total and not changed
end

function kind.next_expiry()
  return soon and math.max(1, soon - now() / 1000)
end

function kind.holders(from)
  local scan, list = call('HSCAN', K[1], from or '0', 'COUNT', 50), {}
  page = {}
  for i = 1, #scan[2], 2 do
    local owner = scan[2][i]
    local hold = string.find(owner, ':', 1, true) and cmsgpack.unpack(scan[2][i + 1])
    if hold and hold[1] > now() / 1000 then
      page[#page + 1], page[#page + 2] = owner, hold
      for _, it in ipairs({owner, math.ceil(hold[1] - now() / 1000), hold[4]}) do list[#list + 1] = it end
    end
  end
  return list, scan[1] ~= '0' and scan[1]
end

-- -> {all permits or '', acquired permits, owner, its permits, its number, ...}; a later page lacks the
-- first two
function kind.inspect(from)
  local list = from and {} or {total or '', used}
  for i = 1, #page, 2 do
    for _, it in ipairs({page[i], page[i + 1][3], page[i + 1][2]}) do list[#list + 1] = it end
  end
  return list
end

-- keep(owner, n): the owner keeps n of its permits -> 1 | 0 it has none
local function keep(owner, n)
  local hold = call('HGET', K[1], owner)
  hold = hold and cmsgpack.unpack(hold)
  if not hold or hold[1] <= now() / 1000 then return 0 end
  if hold[3] > n then
    used, hold[3] = used - hold[3] + n, n
    -- A write that cannot grow comes first, so that a full Redis accepts the next one.
    call('HDEL', K[1], '')
    install(owner, hold, hold[1])
  end
  return 1
end

-- update(what, n, owner) -> {1} done | {0} not done, as it had no effect | {-1} not done: too many permits
--   'set'     n permits in all       'first'   the same, if no number was set yet
--   'add'     n more or, if negative, fewer    'expire'  the semaphore expires in n ms
--   'delete'  deletes the semaphore: its holders lose their permits
--   'keep'    the owner's hold keeps n permits, and gives the others back; {0} if it has none
-- The reply to 'first' depends on which request came first: the field `first` has that request's id.
function kind.update(what, n, owner)
  if what == 'again' then
    if F[5] == 'keep' then return {call('HGET', K[1], F[7]) and 1 or 0} end
    return {(F[5] ~= 'first' or call('HGET', K[1], 'first') == F[1]) and 1 or 0}
  end
  if what == 'expire' then
    call('PEXPIRE', K[6], n)
    return {call('PEXPIRE', K[1], n)}
  end
  if what == 'keep' then return {keep(owner, tonumber(n))} end
  if what == 'first' and total then return {0} end
  changed = true
  if what == 'delete' then
    total, used, soon, late = nil, 0, nil, false
    call('UNLINK', K[6])
    return {call('UNLINK', K[1])}
  end
  local new = what == 'add' and (total or 0) + n or tonumber(n)
  if math.abs(new) > 2147483647 then return {-1} end
  total, none = new, new <= 0 or what == 'add' and none
  if not none then call('HDEL', K[1], 'none') end
  call('HSET', K[1], 'kind', kind.tag, 'permits', total, 'used', used, none and 'none' or 'used', none and 1 or used,
    what == 'first' and what or 'kind', what == 'first' and F[1] or kind.tag)
  return {1}
end
