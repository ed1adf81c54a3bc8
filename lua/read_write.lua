-- read_write: many readers, or one writer, who may read as well. A hash {kind, writer, soon, last} and for
-- each holder, under its owner id, {end in ms, number, value, record}: a lease of its own. w.args is
-- 'write', 'read', or 'read-in-order' for a reader that does not let later writers pass.
kind.tag = 'read-write lock'
-- As last read or written: who writes, how many hold, when the first of them lapses at the earliest, and
-- the last grant number of anybody.
local writer, held, soon, recent

function kind.look(owner)
  local state = call('HMGET', K[1], 'kind', 'writer', 'soon', 'last', owner)
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then alien() end
  writer, held, soon, recent = state[2], 0, tonumber(state[3]), tonumber(state[4])
  if not state[1] then return end
  local ms, entry = now() / 1000, state[5]
  if soon <= ms then
    -- Somebody may have lapsed: only now is it worth a walk over all of them.
    local all, first = call('HGETALL', K[1]), nil
    -- A write that cannot grow comes first, so that a full Redis takes the others.
    call('HDEL', K[1], '')
    for i = 1, #all, 2 do
      if string.find(all[i], ':', 1, true) then
        local ends = cmsgpack.unpack(all[i + 1])[1]
        if ends > ms then
          first = math.min(first or ends, ends)
        else
          call('HDEL', K[1], all[i])
          if all[i] == writer then call('HDEL', K[1], 'writer') end
          if all[i] == writer then writer = false end
          if all[i] == owner then entry = false end
        end
      end
    end
    soon = first
    if not first then
      call('DEL', K[1])
      return
    end
    call('HSET', K[1], 'soon', string.format('%.0f', soon))
  end
  held = call('HLEN', K[1]) - (writer and 4 or 3)
  if entry then
    entry = cmsgpack.unpack(entry)
    return math.ceil(entry[1] - ms), entry[2], entry[3] or nil
  end
end

function kind.admit(w)
  local n, value
  if w.args == 'write' then
    if (held or 0) > 0 then return false end
    n, value, writer = number(), nil, w.owner
  else
    if writer and writer ~= w.from then return false end
    -- The fence has the last write's number, which no reader changes: their own are kept here. They may
    -- be equal, and are never above the next write's, not even where the clock was set back.
    value = call('GET', K[4]) or '0'
    n = math.max(now(), value + 1)
  end
  local ends = now() / 1000 + w.lease
  soon, recent, held = math.min(soon or ends, ends), math.max(recent or 0, n), (held or 0) + 1
  call('HSET', K[1], 'kind', kind.tag, 'soon', string.format('%.0f', soon), 'last', string.format('%.0f', recent),
    w.owner, cmsgpack.pack({ends, n, value or false, w.record}),
    unpack(w.args == 'write' and {'writer', w.owner} or {}))
  call('PEXPIRE', K[1], math.max(w.lease, call('PTTL', K[1])))
  return true, n, value
end

function kind.dismiss(owner)
  if call('HDEL', K[1], owner) == 0 then return false end
  local fields = call('HLEN', K[1])
  if fields > 3 and call('HGET', K[1], 'writer') == owner then
    call('HDEL', K[1], 'writer')
    fields = fields - 1
  end
  if fields > 3 then return true end
  call('DEL', K[1])
  return true, true
end

function kind.extend(owner, lease)
  local entry = call('HGET', K[1], owner)
  entry = entry and cmsgpack.unpack(entry)
  if not entry or entry[1] <= now() / 1000 then return end
  call('PEXPIRE', K[1], math.max(lease, call('PTTL', K[1])))
  local ends = now() / 1000 + lease
  if ends < entry[1] then
    -- For less than it had: it may be the first to lapse now.
    call('HSET', K[1], 'soon', string.format('%.0f', math.min(ends, call('HGET', K[1], 'soon'))))
  end
  entry[1] = ends
  call('HSET', K[1], owner, cmsgpack.pack(entry))
  return lease
end

function kind.rename(w, from)
  local entry = call('HGET', K[1], from)
  entry = entry and cmsgpack.unpack(entry)
  if not entry or entry[1] <= now() / 1000 then return end
  call('HDEL', K[1], from)
  if writer == from then
    writer = w.owner
    call('HSET', K[1], 'writer', writer)
  end
  entry[1], entry[4] = now() / 1000 + w.lease, w.record
  call('HSET', K[1], w.owner, cmsgpack.pack(entry))
  call('PEXPIRE', K[1], math.max(w.lease, call('PTTL', K[1])))
  return entry[2], entry[3] or nil
end

function kind.class(w)
  return w.args == 'read' and 1 or 0
end

function kind.passes(w)
  return w.args ~= 'write' and writer and writer == w.from
end

function kind.full()
  return writer
end

function kind.last()
  local written = tonumber(call('GET', K[4]) or 0)
  -- Writes have their numbers from the fence alone: while the clock is behind it, readers may be ahead.
  return F[6] == 'write' and written or math.max(recent or 0, written)
end

function kind.waits(w)
  -- Who writes shares with nobody, and may hand on as long as its slice lasts.
  if w.args ~= 'write' or writer then return end
  for _, owner in ipairs(call('HKEYS', K[1])) do
    if string.find(owner, ':', 1, true) then tell({owner = owner}, 'yield') end
  end
end

function kind.soon()
  return soon and math.max(1, soon - now() / 1000)
end

function kind.holders()
  local all, list = held > 0 and call('HGETALL', K[1]) or {}, {}
  for i = 1, #all, 2 do
    local mode = all[i] == writer and 'write' or 'read'
    -- Each half of the lock sees its own.
    if string.find(all[i], ':', 1, true) and mode == string.match(F[6], '^%a+') then
      local entry = cmsgpack.unpack(all[i + 1])
      for _, it in ipairs({all[i], math.ceil(entry[1] - now() / 1000), entry[4]}) do list[#list + 1] = it end
    end
  end
  return list
end
