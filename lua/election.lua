-- election: a leader, in a hash {kind, owner, number, record, value, version}; the candidates that wait to
-- succeed it; and, behind them in the queue, the observers that wait for a change. w.args is 'lead|<value>'
-- for a candidate; 'watch' for an observer that has seen nothing yet, 'watch|<number>|<version>|<changes>'
-- for an observer that has seen these. The version counts the values of one term. K[6] has the number of
-- changes, as the score of the member `changes`: by it an observer knows whether it has missed one. The
-- expiry of a lease is not counted, as no script runs then; it shows in the member `leads`, which only an
-- orderly end of the term removes.
kind.tag = 'election'
-- The leader's owner id, the number of its term and the version of its value, as last read or written.
local held, term, version = nil, '0', '0'
local changed -- by this script, and no observer has been notified yet

-- observes(args) -> whether these arguments are an observer's
local function observes(args)
  return string.sub(args, 1, 5) == 'watch'
end

-- changes() -> the number of changes, as text; '0' also after two hours without a leader
local function changes()
  return string.format('%.0f', call('ZSCORE', K[6], 'changes') or 0)
end

-- differs(w) -> whether the current state is new to this observer. A script that hands the leadership on
-- counts that as one change. After two hours without a leader the number of changes is gone, which is not a
-- change.
local function differs(w)
  local its_term, its_version, its_changes = string.match(w.args, '^watch|(%d+)|(%d+)|(%d+)$')
  if its_term ~= term or its_version ~= version then return true end
  if held then return false end
  local n = changes()
  return n ~= '0' and n ~= its_changes
end

-- note(lease): counts a change; the number of changes lives for two hours longer than the lease
local function note(lease)
  if not changed then call('ZINCRBY', K[6], 1, 'changes') end
  if held then call('ZADD', K[6], 0, 'leads') else call('ZREM', K[6], 'leads') end
  call('PEXPIRE', K[6], string.format('%.0f', lease + 7200000))
  changed = true
end

-- beyond() -> a number above the last grant's. It is not kept, as what observers get is not a grant.
local function beyond()
  return math.max(now(), (tonumber(call('GET', K[4])) or 0) + 1)
end

-- candidates() -> whether the first waiter in the queue is a candidate
local function candidates()
  local score = call('ZRANGE', K[2], 0, 0, 'WITHSCORES')[2]
  return score and score + 0 < 1125899906842624 -- 2^50, where the class of the observers begins
end

-- announce(): notifies the observers of the outcome of a change. If there are very many, it notifies the
-- first ones; the others find it at their next heartbeat.
local function announce()
  changed = false
  local n = beyond()
  local owners = call('ZRANGE', K[2], '1125899906842624', '+inf', 'BYSCORE', 'LIMIT', 0, 60)
  for _, owner in ipairs(owners) do
    local w = waiting(owner)
    drop(owner)
    if w and differs(w) then tell(w, 'in', n) end
  end
end

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'owner', 'number', 'version')
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  held, term, version = state[2], state[3] or '0', state[4] or '0'
  if held == owner then return call('PTTL', K[1]), tonumber(term) end
end

function kind.class(w)
  return observes(w.args) and 1 or 0
end

-- An observer waits for its change and for nobody else; a candidate does not wait for observers.
function kind.can_barge(w)
  if observes(w.args) then return differs(w) end
  return not held and call('EXISTS', K[2]) == 1 and not candidates()
end

function kind.try_acquire(w)
  if observes(w.args) then
    if not differs(w) then return false end
    return true, beyond()
  end
  if held then return false end
  local n = number()
  held, term, version = w.owner, string.format('%.0f', n), '0'
  call('HSET', K[1], 'kind', kind.tag, 'owner', held, 'number', term, 'record', w.record,
    'value', string.sub(w.args, 6), 'version', version)
  call('PEXPIRE', K[1], w.lease)
  note(w.lease)
  return true, n
end

function kind.release(owner)
  if call('HGET', K[1], 'owner') ~= owner or call('DEL', K[1]) ~= 1 then return false end
  held, term, version = nil, '0', '0'
  note(0)
  return true, true
end

function kind.renew(owner, lease)
  if call('HGET', K[1], 'owner') ~= owner then return end
  call('PEXPIRE', K[6], string.format('%.0f', lease + 7200000))
  return call('PEXPIRE', K[1], lease) == 1 and lease
end

-- Notifies the observers once it is known who leads: not while a candidate is about to be admitted.
function kind.is_full()
  if changed and (held or not candidates()) then announce() end
  return held
end

function kind.next_expiry()
  local ms = call('PTTL', K[1])
  return ms >= 0 and ms
end

function kind.holders()
  return held and {held, call('PTTL', K[1]), call('HGET', K[1], 'record')} or {}
end

-- With args 'candidates': {record, value, ...} of the first hundred in the queue. Otherwise {number, version,
-- changes, 1 after a term whose lease expired | 0}, and if there is a leader {..., value, record, remaining
-- ms}
function kind.inspect()
  local list = {term, version, changes(), not held and call('ZSCORE', K[6], 'leads') and 1 or 0}
  if F[6] == 'candidates' then
    list = {}
    for _, owner in ipairs(call('ZRANGE', K[2], '-inf', '(1125899906842624', 'BYSCORE', 'LIMIT', 0, 100)) do
      local w = waiting(owner)
      if w and not silent(w) then
        list[#list + 1] = w.record
        list[#list + 1] = string.sub(w.args, 6)
      end
    end
  elseif held then
    local state = call('HMGET', K[1], 'value', 'record')
    list[5], list[6], list[7] = state[1], state[2], call('PTTL', K[1])
  end
  return list
end

-- update('proclaim', value, owner): sets the leader's value -> {1} | {0} that owner does not lead
function kind.update(what, value)
  if held ~= F[7] then return {0} end
  if what == 'again' then return {1} end
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], '')
  version = string.format('%.0f', version + 1)
  call('HSET', K[1], 'value', value, 'version', version)
  note(call('PTTL', K[1]))
  return {1}
end
