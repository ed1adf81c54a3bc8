-- The waiters for a condition's signal. `:conditions` has a member for each, all with the same score, so that
-- they are in the order of their text: <condition>|<arrival>|<owner>.

-- stay(w, since) -> a busy reply without the last number. A heartbeat of w, which has waited for its
-- condition since then, or its first position there.
local function stay(w, since)
  w.since = since
  place(w, now(), lifetime(w), w.steady or now(), false)
  -- Written again at each heartbeat: if the member were lost, no signal would find this waiter.
  call('ZADD', K[6], '0', w.condition .. '|' .. since .. '|' .. w.owner)
  others_wait = true
  local ttl = call('PTTL', K[6])
  if ttl < lifetime(w) then call('PEXPIRE', K[6], fmt('%.0f', math.max(ttl, 2 * lifetime(w)))) end
  return {0, 0, math.ceil(math.min(w.waiter_timeout, w.lease) / 3), since, deaf(w) and 1 or nil}
end

-- behind(w) -> the arrival of w, behind all other waiters for its condition.
local function behind(w)
  local from, to = '(' .. w.condition .. '}', '[' .. w.condition .. '|'
  local member = call('ZREVRANGEBYLEX', K[6], from, to, 'LIMIT', '0', '1')[1]
  return fmt('%016.0f', after(member and string.match(member, '|(%d+)|[^|]*$')))
end

-- is_inside(owner) -> whether it is, in as few commands as the rule can say it
local function is_inside(owner)
  if kind.holder then return kind.holder() == owner end
  return kind.load(owner)
end
