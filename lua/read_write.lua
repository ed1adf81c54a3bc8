-- read_write: many readers, or one writer, which may read as well. A hash {kind, writer, soon, last} and, for
-- each holder, under its owner id, {end in ms, number, value, record}: each has a lease of its own. w.args is
-- 'write', 'read', or 'read-in-order' for a reader that does not let later writers pass.
--
-- `soon` is the time in ms before which no holder expires. After that time all holders are looked at, some by
-- each script. While this scan is in progress, `soon` is '<ms> <cursor> <first>': where HSCAN continues, and
-- the first expiry among the holders that were looked at.
kind.tag = 'read-write lock'
-- As last read or written: the writer, the number of holders, when the first of them expires at the earliest,
-- and the last grant number.
local writer, held, soon, recent
local cursor, first_end -- of the scan in progress

-- spelled() -> `soon` as text, with the scan in progress
local function spelled()
  if not cursor then return string.format('%.0f', soon) end
  return string.format('%.0f %s %.0f', soon, cursor, first_end or 0)
end

-- spell(text): reads that text
local function spell(text)
  local ms, at, seen = string.match(text or '', '^(%S+) ?(%S*) ?(%S*)')
  soon, cursor, first_end = tonumber(ms), at ~= '' and at or nil, tonumber(seen)
  if first_end == 0 then first_end = nil end
end

-- ends_at(ms): records that a lease expires then
local function ends_at(ms)
  soon = math.min(soon or ms, ms)
  if cursor then first_end = math.min(first_end or ms, ms) end
end

-- sweep(ms, owner): looks at some of the holders, and drops those that have expired, and this owner
local function sweep(ms, owner)
  local scan, lapsed = call('HSCAN', K[1], cursor or '0', 'COUNT', 50), {}
  local some = scan[2]
  cursor = scan[1]
  for i = 1, #some, 2 do
    if string.find(some[i], ':', 1, true) then
      local ends = cmsgpack.unpack(some[i + 1])[1]
      if ends > ms then ends_at(ends) else lapsed[#lapsed + 1] = some[i] end
    end
  end
  lapsed[#lapsed + 1] = owner
  for _, it in ipairs(lapsed) do
    if it == writer then
      writer = false
      call('HDEL', K[1], 'writer')
    end
  end
  call('HDEL', K[1], '', unpack(lapsed))
  if cursor == '0' then soon, cursor, first_end = first_end, nil, nil end
end

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'writer', 'soon', 'last', owner)
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  writer, held, recent = state[2], 0, tonumber(state[4])
  spell(state[3])
  if not state[1] then return end
  local ms, entry = now() / 1000, state[5] and cmsgpack.unpack(state[5])
  local over = entry and entry[1] <= ms
  if soon <= ms then sweep(ms, over and owner or nil) end
  held = call('HLEN', K[1]) - (writer and 4 or 3)
  if held == 0 then
    soon, cursor, first_end = nil, nil, nil
    call('DEL', K[1])
    return
  end
  if not soon then soon = ms end
  if spelled() ~= state[3] then call('HSET', K[1], 'soon', spelled()) end
  if entry and not over then return math.ceil(entry[1] - ms), entry[2], entry[3] or nil end
end

-- More may have expired than this script has looked at.
function kind.more()
  return cursor
end

function kind.try_acquire(w)
  local n, value
  if w.args == 'write' then
    if (held or 0) > 0 then return false end
    n, value, writer = number(), nil, w.owner
  else
    if writer and writer ~= w.from then return false end
    -- The fence has the last write's number, which no reader changes: the readers' own numbers are kept here.
    -- They may be equal, and are never above the next write's, not even if the clock was set back.
    value = call('GET', K[4])
    value = tonumber(value) and value or '0'
    n = math.max(now(), value + 1)
  end
  local ends = now() / 1000 + w.lease
  ends_at(ends)
  recent, held = math.max(recent or 0, n), (held or 0) + 1
  call('HSET', K[1], 'kind', kind.tag, 'soon', spelled(), 'last', string.format('%.0f', recent),
    w.owner, cmsgpack.pack({ends, n, value or false, w.record}),
    unpack(w.args == 'write' and {'writer', w.owner} or {}))
  call('PEXPIRE', K[1], held > 1 and math.max(w.lease, call('PTTL', K[1])) or w.lease)
  return true, n, value
end

function kind.release(owner)
  if call('HDEL', K[1], owner) == 0 then return false end
  local fields = call('HLEN', K[1])
  local writes = fields > 3 and call('HGET', K[1], 'writer') == owner
  if fields > (writes and 4 or 3) then
    if writes then call('HDEL', K[1], 'writer') end
    return true
  end
  call('DEL', K[1])
  return true, true
end

function kind.renew(owner, lease)
  local entry = call('HGET', K[1], owner)
  entry = entry and cmsgpack.unpack(entry)
  if not entry or entry[1] <= now() / 1000 then return end
  call('PEXPIRE', K[1], math.max(lease, call('PTTL', K[1])))
  local ends = now() / 1000 + lease
  if ends < entry[1] then
    -- The lease is shorter than before, so this hold may now be the first to expire.
    spell(call('HGET', K[1], 'soon'))
    ends_at(ends)
    call('HSET', K[1], 'soon', spelled())
  end
  entry[1] = ends
  call('HSET', K[1], owner, cmsgpack.pack(entry))
  return lease
end

function kind.transfer(w, from)
  local entry = call('HGET', K[1], from)
  entry = entry and cmsgpack.unpack(entry)
  if not entry or entry[1] <= now() / 1000 then return end
  call('HDEL', K[1], from)
  if writer == from then
    writer = w.owner
    call('HSET', K[1], 'writer', writer)
  end
  entry[1], entry[4] = now() / 1000 + w.lease, w.record
  ends_at(entry[1])
  call('HSET', K[1], 'soon', spelled(), w.owner, cmsgpack.pack(entry))
  call('PEXPIRE', K[1], math.max(w.lease, call('PTTL', K[1])))
  return entry[2], entry[3] or nil
end

function kind.class(w)
  return w.args == 'read' and 1 or 0
end

function kind.can_barge(w)
  return w.args ~= 'write' and writer and writer == w.from
end

function kind.is_full()
  return writer
end

function kind.last()
  local written = tonumber(call('GET', K[4])) or 0
  -- Writes take their numbers from the fence alone: while the clock is behind the fence, readers may be
  -- ahead.
  return F[6] == 'write' and written or math.max(recent or 0, written)
end

function kind.on_wait(w)
  -- A holding writer shares with nobody, and may hand the lock on during its local hand-off period.
  if w.args ~= 'write' or writer then return end
  -- Notifies some of the readers: the others ask when their local hand-off period is over, and learn it then.
  local some = call('HSCAN', K[1], '0', 'COUNT', 30)[2]
  for i = 1, math.min(60, #some), 2 do
    if string.find(some[i], ':', 1, true) then tell({owner = some[i]}, 'yield') end
  end
end

function kind.next_expiry()
  return soon and math.max(1, soon - now() / 1000)
end

function kind.holders(from)
  local scan, list = held > 0 and call('HSCAN', K[1], from or '0', 'COUNT', 30) or {'0', {}}, {}
  local all = scan[2]
  for i = 1, #all, 2 do
    local mode = all[i] == writer and 'write' or 'read'
    -- Each half of the lock sees its own holders.
    if string.find(all[i], ':', 1, true) and mode == string.match(F[6], '^%a+') then
      local entry = cmsgpack.unpack(all[i + 1])
      local left = math.ceil(entry[1] - now() / 1000)
      for _, it in ipairs(left > 0 and {all[i], left, entry[4]} or {}) do list[#list + 1] = it end
    end
  end
  return list, scan[1] ~= '0' and scan[1]
end
