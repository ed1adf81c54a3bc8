-- barrier: the waiters are its round; the party that completes the round trips it. A hash {kind, broken,
-- bound}, and owner -> {end, number, value} for each admitted party, until it has left. Such an entry lives
-- as long as a tombstone, so that it outlives every request that may still ask whether the party was
-- admitted. While the action of the tripper runs, also {tripper, last, members, index}: its owner id, and for
-- the other parties the last one's position, their number, and the first one's index. While more than one
-- script is needed to admit the parties of a round, {upto, shift}: the last one's position, and by how much
-- the next one's index exceeds the number of parties that are left.
--
-- A tripper without an action opens the barrier at once. A tripper with an action opens it afterwards (update
-- 'open'); if it leaves before that, or its lease expires, the barrier is broken.
kind.tag = 'cyclic barrier'
kind.whole = true -- what it admits is not renewed
local known, tripper, final, index, broken, bound, upto, shift, swept -- as last read or written
local ready -- a round is complete, and may be tripped
-- How many parties are still to be admitted, the next one's index, and the last one's entry, to be put back.
local members, nth, came = 0, 0, nil

-- parties(args) -> how many parties make a round. (The arguments also say whether there is an action.)
local function parties(args)
  return tonumber(string.match(args, '^%d+'))
end

-- lives(least): makes the state outlive the queue positions, and live for at least that many ms. A broken
-- barrier does not expire: it stays until it is reset.
local function lives(least)
  local ms, ttl = math.max(60000, 2 * F[4]), call('PTTL', K[1])
  if not known or ttl >= 0 and ttl < math.max(ms / 2, least or 0) then
    call('PEXPIRE', K[1], math.max(ms, least or 0))
  end
  known = kind.tag
end

-- breaks(): breaks the barrier. A party that waits for the next round breaks only that round, and not a
-- complete one before it.
local function breaks()
  local state = call('HMGET', K[1], 'kind', 'tripper', 'last', 'members')
  if state[1] and state[1] ~= kind.tag then return end
  local entry = state[2] and call('HGET', K[1], state[2])
  local complete = entry and call('ZCOUNT', K[2], '-inf', state[3]) == state[4] + 0
  if state[2] and not complete then
    call('HDEL', K[1], state[2], 'tripper', 'last', 'members', 'index')
    tripper = nil
  end
  call('HSET', K[1], 'kind', kind.tag, 'broken', 1)
  call('PERSIST', K[1])
  known, broken = kind.tag, '1'
end

-- lets_in(n, position, more): that many parties are to be admitted, the last one from that position.
local function lets_in(n, position, more)
  members, nth, upto, shift = n, n + more, position, more
end

-- one_less(): one party fewer is to be admitted.
local function one_less()
  members, nth = members - 1, nth - 1
  if members == 0 then call('HDEL', K[1], 'upto', 'shift') end
end

-- sweep(ms): drops expired entries. Of earlier rounds only the entries that were not given back remain: each
-- round looks at some of them.
local function sweep(ms)
  local scan, over = call('HSCAN', K[1], swept or '0', 'COUNT', 50), {}
  for i = 1, #scan[2], 2 do
    if string.find(scan[2][i], ':', 1, true) and cmsgpack.unpack(scan[2][i + 1])[1] <= ms then
      over[#over + 1] = scan[2][i]
    end
  end
  if over[1] then call('HDEL', K[1], unpack(over)) end
  if scan[1] ~= '0' then call('HSET', K[1], 'swept', scan[1]) elseif swept then call('HDEL', K[1], 'swept') end
end

function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'tripper', 'last', 'index', 'broken', 'bound', owner, 'upto', 'shift',
    'swept')
  known, tripper, final, index, broken, bound = unpack(state, 1, 6)
  swept = state[10]
  if known ~= kind.tag and (known or call('EXISTS', K[1]) == 1) then foreign_key() end
  members = 0
  if state[8] then lets_in(call('ZCOUNT', K[2], '-inf', state[8]), state[8], state[9] + 0) end
  local entry = tripper and call('HGET', K[1], tripper)
  if tripper and not (entry and cmsgpack.unpack(entry)[1] > now()) then
    call('HDEL', K[1], tripper)
    breaks()
    if owner == state[2] then return end
  end
  entry = state[7] and cmsgpack.unpack(state[7])
  -- A party that passed is known for longer than its lease.
  if entry and entry[1] > now() then
    return math.min(math.ceil((entry[1] - now()) / 1000), F[2]), entry[2], entry[3]
  end
end

function kind.reject(w)
  local score = (members > 0 or bound or broken) and call('ZSCORE', K[2], w.owner)
  if members > 0 and score and score + 0 <= upto + 0 then return end
  -- It has not been notified yet.
  if bound and score and score + 0 <= bound + 0 then return 'broken-it-was-reset' end
  -- It was admitted or notified, and did not notice that for too long.
  if bound and (w.arrival or '') ~= '' and w.arrival + 0 <= bound + 0 then return 'broken-its-round-is-over' end
  if broken and not (tripper and score and score + 0 <= final + 0) then return 'broken' end
  local head = call('ZRANGE', K[2], 0, 0, 'WITHSCORES')
  local ours = head[1] and head[1] ~= w.owner and not (bound and head[2] + 0 <= bound + 0)
  local position = ours and call('HGET', K[3], head[1])
  local n = position and parties(cmsgpack.unpack(position)[4])
  if n and n ~= parties(w.args) then return string.format('the-waiting-parties-expect-%.0f-parties', n) end
end

function kind.try_acquire(w)
  local n, acts, value = parties(w.args), false
  local score = members > 0 and call('ZSCORE', K[2], w.owner)
  local opens = score and score + 0 <= upto + 0
  if not opens and (members > 0 or tripper or not (ready or n == 1)) then return false end
  if not opens then acts = string.find(w.args, 'then', 1, true) end
  -- It would not receive the message to run its action: it trips the barrier at its own next heartbeat.
  if acts and w.owner ~= F[1] and deaf(w) then return false end
  local grant = number()
  if opens then
    value = 2 * nth
    one_less()
  else
    -- The tripper may itself have waited in the queue: it then proceeds with the parties behind it.
    local waited = call('ZRANK', K[2], w.owner) and 1 or 0
    value, nth = 2 * waited * (n - 1), n - 1 - waited
    ready = false
    final = n > 1 and call('ZRANGE', K[2], n - 2 + waited, n - 2 + waited, 'WITHSCORES')[2] or 0
    if known then sweep(now()) end
    call('HSET', K[1], 'kind', kind.tag)
    if acts then
      tripper, value = w.owner, value + 1
      call('HSET', K[1], 'tripper', tripper, 'last', final, 'members', n - 1, 'index', nth)
    elseif n > 1 then
      bound = final
      lets_in(n - 1, final, -waited)
      call('HSET', K[1], 'bound', final, 'upto', upto, 'shift', shift)
    end
  end
  local ms = acts and w.lease or math.max(60000, w.lease, 2 * (w.waiter_timeout or F[4]))
  local entry = cmsgpack.pack({now() + ms * 1000, grant, value})
  came = not acts and entry
  call('HSET', K[1], w.owner, entry)
  lives(ms)
  return true, grant, value
end

-- Each heartbeat checks the position before its own, and the first party's checks the last position: a dead
-- party is found by the party behind it. A party without a position trips the barrier if it is the last to
-- arrive, but not while a whole round waits for its first party to trip it.
function kind.can_barge(w)
  if not known then call('HSET', K[1], 'kind', kind.tag) end
  lives()
  if w.arrival == '' and bound and now() <= bound + 0 then
    -- The clock was set back: this arrival must still be behind all earlier ones.
    local tail = call('ZRANGE', K[2], -1, -1, 'WITHSCORES')[2]
    w.arrival = fmt('%.0f', math.max(bound, tail or 0) + 1)
  end
  local rank = not broken and members == 0 and call('ZRANK', K[2], w.owner)
  if rank then
    local other = call('ZRANGE', K[2], rank - 1, rank - 1)[1]
    local position = other ~= w.owner and waiting(other)
    if position and dead(position) then
      drop(other)
      breaks()
    end
    return false
  end
  if kind.reject(w) or call('ZCARD', K[2]) >= parties(w.args) then return false end
  return not kind.is_full(w) and ready
end

-- is_full(w) -> true while no round is complete, of the waiters alone, or together with w, which has no
-- position. Checks at once whether the parties of a complete round are alive; in a large round only the first
-- fifty. Each of the others has a neighbour that checks it at every heartbeat.
function kind.is_full(w)
  if members > 0 or broken or ready then return false end
  if tripper then return true end
  local head, score = unpack(call('ZRANGE', K[2], 0, 0, 'WITHSCORES'))
  -- It has not been notified of a reset yet.
  if head and bound and score + 0 <= bound + 0 then return false end
  local first = w or head and waiting(head)
  if not first then return not head end
  local others = parties(first.args) - (w and 1 or 0)
  if call('ZCARD', K[2]) < others then return true end
  for _, owner in ipairs(others > 0 and call('ZRANGE', K[2], 0, math.min(others, 50) - 1) or {}) do
    local position = waiting(owner)
    if not position or dead(position) then
      drop(owner)
      breaks()
      return false
    end
    -- The server was stalled: this party must be heard first.
    if position.steady == false then return true end
  end
  ready = true
  return false
end

function kind.release(owner)
  if call('HDEL', K[1], owner) == 0 then return false end
  if call('HGET', K[1], 'tripper') == owner then breaks() end
  return true
end

function kind.renew(owner, lease)
  call('HDEL', K[1], '')
  local entry = call('HGET', K[1], owner)
  entry = entry and cmsgpack.unpack(entry)
  if not entry or entry[1] <= now() then return end
  call('HSET', K[1], owner, cmsgpack.pack({math.max(entry[1], now() + lease * 1000), entry[2], entry[3]}))
  known = kind.tag
  lives()
  return lease
end

function kind.on_leave(w, why)
  -- It was admitted while its process could not be notified: it has passed, and learns that at its next
  -- heartbeat.
  if why == 'unheard' and came then
    call('HSET', K[1], w.owner, came)
  elseif members > 0 then
    one_less()
  else
    -- The others of a round that is being admitted proceed without it.
    local last = w.score and call('HGET', K[1], 'upto')
    if not (last and w.score + 0 <= last + 0) then breaks() end
  end
end

function kind.next_expiry()
  local entry = tripper and call('HGET', K[1], tripper)
  return entry and math.max(1, (cmsgpack.unpack(entry)[1] - now()) / 1000)
end

function kind.holders()
  local ms = kind.next_expiry()
  return ms and {tripper, math.ceil(ms), ''} or {}
end

function kind.inspect()
  return {broken and 1 or 0}
end

-- 'open', n parties, by the tripper -> {1} | {0 it was broken}; 'reset' -> {1}: notifies the waiters.
function kind.update(what, n, owner)
  if what == 'open' and tripper == owner then
    call('HDEL', K[1], 'tripper', 'last', 'members', 'index')
    if n ~= '1' then
      lets_in(n - 1, final, index - (n - 1))
      call('HSET', K[1], 'bound', final, 'upto', upto, 'shift', shift)
    end
    tripper, bound = nil, final
    return {1}
  end
  if what ~= 'reset' then return {call('HEXISTS', K[1], F[7] or '')} end
  local tail = call('ZRANGE', K[2], -1, -1, 'WITHSCORES')[2]
  call('HDEL', K[1], 'broken', tripper or '', 'tripper', 'last', 'members', 'index')
  tripper, broken, known = nil, nil, nil
  bound = math.max(now(), (tail or 0) + 0)
  call('HSET', K[1], 'kind', kind.tag, 'bound', fmt('%.0f', bound))
  lives()
  return {1}
end
