-- members: processes that are alive, in a hash {kind, agreed, plan, planned} with {number, record, value, lease ms}
-- for each member, recognized by the colon in its owner id; and observers, which wait for a change and hold nothing.
-- K[6] has the members by the ms at which they expire, and as the score of `version` a number that each member that
-- comes or goes increments: it begins as the first member's number, and is kept for two hours longer than the last.
-- w.args is 'join|<agreed>|<value>' for a member; 'watch' for an observer that has seen nothing yet, 'watch|<version>'
-- for one that has seen this version, 'watch|<version>|<planned>' for one that also waits for a plan, and goes first.
kind.tag = 'members'
local MOST = 512
local agreed, planned, version -- as last read or written; version: nil as long as nothing was read

-- lasts(key, ms): the key lives for that long at least
local function lasts(key, ms)
  call('PEXPIRE', key, fmt('%.0f', math.max(ms, call('PTTL', key))))
end

-- changed(n, lease, its): so many members have come or gone; the number of the one that has come
local function changed(n, lease, its)
  version = version > 0 and version + n or its or now()
  call('ZADD', K[6], fmt('%.0f', version), 'version')
  lasts(K[6], lease + 7200000)
  if call('ZCARD', K[6]) > 1 then return end
  call('DEL', K[1])
  agreed, planned = nil, '0'
end

-- seen(w) -> true if there is nothing new to this observer
local function seen(w)
  local it = fmt('watch|%.0f', version)
  return w.args == it or w.args == it .. '|' .. planned
end

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', owner, 'agreed', 'planned')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  agreed, planned = state[3], state[4] or '0'
  version = tonumber(call('ZSCORE', K[6], 'version') or 0)
  local ms = now() / 1000
  local gone = call('ZRANGE', K[6], '-inf', fmt('%.0f', math.floor(ms)), 'BYSCORE')
  if gone[1] then
    call('HDEL', K[1], unpack(gone))
    call('ZREM', K[6], unpack(gone))
    changed(#gone, 0)
  end
  local ends = state[2] and call('ZSCORE', K[6], owner)
  if not ends then return end
  local number = cmsgpack.unpack(state[2])[1]
  return math.ceil(ends - ms), number, number
end

function kind.class(w)
  return (string.sub(w.args, 1, 4) == 'join' or string.find(w.args, '|.*|')) and 0 or 1
end

function kind.reject(w)
  if not version then kind.load(w.owner) end
  local its = string.match(w.args, '^join|([^|]*)|')
  if its and agreed and its ~= agreed then
    return 'conflict-the-members-have-agreed-on-' .. agreed .. ',-not-on-' .. its
  end
  return its and call('ZCARD', K[6]) > MOST and 'there-are-' .. MOST .. '-members,-and-no-more-may-join' or nil
end

-- Nobody waits for anybody else.
function kind.can_barge(w)
  return not kind.reject(w) and not seen(w)
end

function kind.try_acquire(w)
  if not version then kind.load(w.owner) end
  local its, value = string.match(w.args, '^join|([^|]*)|(.*)$')
  if not its then
    if seen(w) then return false end
    return true, math.max(now(), (call('GET', K[4]) or 0) + 1) -- not kept, as it is not a grant's
  end
  local n = number()
  agreed = its
  call('HSET', K[1], 'kind', kind.tag, 'agreed', its, w.owner, cmsgpack.pack({n, w.record, value, w.lease}))
  call('ZADD', K[6], fmt('%.0f', now() / 1000 + w.lease), w.owner)
  lasts(K[1], w.lease + 0)
  changed(1, w.lease, n)
  return true, n, n
end

function kind.release(owner)
  if not kind.load(owner) then return false end
  call('HDEL', K[1], owner)
  call('ZREM', K[6], owner)
  changed(1, 0)
  return true, not agreed
end

function kind.renew(owner, lease)
  if not kind.load(owner) then return end
  lasts(K[1], lease + 0)
  lasts(K[6], lease + 7200000)
  call('ZADD', K[6], 'XX', fmt('%.0f', now() / 1000 + lease), owner)
  return lease
end

-- each() -> {owner, remaining ms, {number, record, value, lease ms}, ...} of the members
local function each()
  local all, list = call('ZRANGE', K[6], 0, -2, 'WITHSCORES'), {}
  for i = 1, #all, 2 do
    local it = call('HGET', K[1], all[i])
    if it then
      local ms = math.ceil(all[i + 1] - now() / 1000)
      list[#list + 1], list[#list + 2], list[#list + 3] = all[i], ms, cmsgpack.unpack(it)
    end
  end
  return list
end

function kind.next_expiry()
  local first = call('ZRANGE', K[6], 0, 0, 'WITHSCORES')
  return first[1] and first[1] ~= 'version' and math.max(1, first[2] - now() / 1000)
end

function kind.holders()
  local list = each()
  for i = 3, #list, 3 do list[i] = list[i][2] end
  return list
end

-- {version, planned, agreed, plan (if asked for), and of each member its number, remaining ms, record, value, lease ms}
function kind.inspect()
  local plan = F[6] == 'plan' and call('HGET', K[1], 'plan')
  local list, members = {fmt('%.0f', version), planned, agreed or '', plan or ''}, each()
  for i = 3, #members, 3 do
    local number, record, value, lease = unpack(members[i])
    for _, it in ipairs({fmt('%.0f', number), members[i - 1], record, value, lease}) do list[#list + 1] = it end
  end
  return list
end

-- update('plan', version, plan): a plan for the members of that version, if there is none yet -> {1 | 0 there is}
function kind.update(what, of, plan)
  if what == 'again' then return {planned == F[6] and 1 or 0} end
  if not agreed or of ~= fmt('%.0f', version) or of == planned then return {0} end
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], '')
  call('HSET', K[1], 'plan', plan, 'planned', of)
  planned = of
  return {1}
end
