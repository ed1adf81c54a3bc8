-- semaphore: so many permits, some of them out. A hash {kind, permits, used, soon, first, none}, and for each
-- owner {end ms, number, permits, record}, known by the colon in its id. The permits are their users'
-- state: the key has no end unless one was asked for.
kind.tag = 'semaphore'
-- As last read or written: all permits, those that are out, the ms before which nobody's lease ends, and whether
-- there were none on purpose: then nobody asks for too many, as others are to add them.
local total, used, soon, none
local changed -- the permits are others than when those who wait were last asked whether they may hope

-- holds() -> {owner, {end ms, number, permits, record}, ...}
local function holds()
  local all, list = call('HGETALL', K[1]), {}
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) then
      list[#list + 1] = all[i]
      list[#list + 1] = cmsgpack.unpack(all[i + 1])
    end
  end
  return list
end

-- install(owner, hold, ends): one write of all that is new. (Not every script has now() before this.)
local function install(owner, hold, ends)
  hold[1] = math.floor(ends)
  soon = math.min(soon or hold[1], hold[1])
  call('HSET', K[1], 'used', used, 'soon', string.format('%.0f', soon), owner, cmsgpack.pack(hold))
end

-- Whose lease is over is looked for only when somebody's may be: otherwise it costs the same however many
-- are inside.
function kind.look(owner)
  local state = call('HMGET', K[1], 'kind', 'permits', 'used', 'soon', owner, 'none')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then alien() end
  total, used, soon, none = tonumber(state[2]), tonumber(state[3]) or 0, tonumber(state[4]), state[6] == '1'
  local ms = soon and now() / 1000
  if soon and soon <= ms then
    local all = holds()
    used, soon = 0, nil
    -- A write that cannot grow comes first, so that a full Redis takes the others.
    call('HDEL', K[1], 'soon')
    for i = 1, #all, 2 do
      local hold = all[i + 1]
      if hold[1] > ms then
        used, soon = used + hold[3], math.min(soon or hold[1], hold[1])
      else
        call('HDEL', K[1], all[i])
      end
    end
    call('HSET', K[1], 'used', used, soon and 'soon' or 'used', soon and string.format('%.0f', soon) or used)
  end
  local hold = state[5] and cmsgpack.unpack(state[5])
  if hold and hold[1] > ms then return math.ceil(hold[1] - ms), hold[2], hold[3] end
end

function kind.refuse(w)
  if w.args == 'all' then return end
  if not total then return 'it-has-no-permits:-set_permits-comes-first' end
  if not none and tonumber(w.args) > total then return string.format('it-has-%.0f-permits-in-all', total) end
end

-- For 'all' what is there, which must be something.
function kind.admit(w)
  local free = total and total - used or 0
  local wanted = tonumber(w.args) or math.max(free, 1)
  if wanted > free then return false end
  local n = number()
  used = used + wanted
  install(w.owner, {0, n, wanted, w.record}, now() / 1000 + w.lease)
  return true, n, wanted
end

function kind.dismiss(owner)
  local state = call('HMGET', K[1], 'used', owner)
  if not state[2] then return false end
  call('HDEL', K[1], owner)
  used = state[1] - cmsgpack.unpack(state[2])[3]
  if used == 0 then call('HDEL', K[1], 'soon') end
  call('HSET', K[1], 'used', used)
  return true
end

function kind.extend(owner, lease)
  local state = call('HMGET', K[1], 'used', 'soon', owner)
  local hold = state[3] and cmsgpack.unpack(state[3])
  if not hold or hold[1] <= now() / 1000 then return end
  -- A write that cannot grow comes first, so that a full Redis takes the next one.
  call('HDEL', K[1], '')
  used, soon = state[1], tonumber(state[2])
  install(owner, hold, now() / 1000 + lease)
  return lease
end

function kind.rename(w, from)
  local hold = call('HGET', K[1], from)
  hold = hold and cmsgpack.unpack(hold)
  if not hold or hold[1] <= now() / 1000 then return end
  call('HDEL', K[1], from)
  hold[4] = w.record
  install(w.owner, hold, now() / 1000 + w.lease)
  return hold[2], hold[3]
end

-- After a change the queue is read, as its first ones may have to be told that they wait in vain.
function kind.full()
  return total and used >= total and not changed
end

function kind.soon()
  return soon and math.max(1, soon - now() / 1000)
end

function kind.holders()
  local all, list = holds(), {}
  for i = 1, #all, 2 do
    local hold = all[i + 1]
    list[#list + 1] = all[i]
    list[#list + 1] = math.ceil(hold[1] - now() / 1000)
    list[#list + 1] = hold[4]
  end
  return list
end

-- -> {all permits or '', permits out, owner, its permits, its number, ...}
function kind.state()
  local all, list = holds(), {total or '', used}
  for i = 1, #all, 2 do
    list[#list + 1] = all[i]
    list[#list + 1] = all[i + 1][3]
    list[#list + 1] = all[i + 1][2]
  end
  return list
end

-- change(what, n) -> {1} done | {0} not, as it was no use | {-1} not, as there would be too many
--   'set'     n permits in all       'first'   the same, if it has none yet
--   'add'     n more or, below 0, fewer        'expire'  all of it ends in n ms
--   'delete'  all of it ends now: who holds some has lost them
-- Of 'first', whose answer depends on who came first, `first` keeps the request that did.
function kind.change(what, n)
  if what == 'again' then
    return {(F[5] ~= 'first' or call('HGET', K[1], 'first') == F[1]) and 1 or 0}
  end
  if what == 'expire' then return {call('PEXPIRE', K[1], n)} end
  if what == 'first' and total then return {0} end
  changed = true
  if what == 'delete' then
    total, used, soon = nil, 0, nil
    return {call('DEL', K[1])}
  end
  local new = what == 'add' and (total or 0) + n or tonumber(n)
  if math.abs(new) > 2147483647 then return {-1} end
  total, none = new, new <= 0 or what == 'add' and none
  if not none then call('HDEL', K[1], 'none') end
  call('HSET', K[1], 'kind', kind.tag, 'permits', total, 'used', used, none and 'none' or 'used', none and 1 or used,
    what == 'first' and what or 'kind', what == 'first' and F[1] or kind.tag)
  return {1}
end
