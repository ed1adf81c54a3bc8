-- The order of the waiters, and the only loop that admits them.
--
-- A position is {lease ms, last heartbeat, waiter timeout ms, args, record, condition, since, steady, priority}: what
-- its owner asked for and when its last heartbeat came (server time). Order and liveness are kept apart: a
-- heartbeat never moves a position. Only a waiter for a condition's signal, or one that has waited for it,
-- has condition and since (its arrival there); condition is false once it came back without a signal. Steady
-- is the time since when its heartbeats have come without a gap; false while it has its waiter timeout once
-- more, to send a heartbeat in (see dead()). Priority, if it is not 0, is how many STEPs earlier the waiter counts as
-- having arrived: so it comes before those of lower priority that have not waited for that much longer.

local fmt = string.format
local CLASS = 1125899906842624 -- 2^50: arrivals of one order class stay below it
local STEP = 30000000 -- what one priority is worth in us of waiting

-- How much this script may still do for the waiters: to look at a waiter and drop it counts 1, to admit it 2,
-- to take that back 2. The server does no other work meanwhile, so what remains is left to the next script.
local rest = 30
-- Once `rest` is spent: whether a waiter was told to continue.
local carried

-- unpacked(text) -> the table that was packed | nil: none was, or the text is another program's, and counts as none
local function unpacked(text)
  if not text then return nil end
  local ok, it = pcall(cmsgpack.unpack, text)
  return ok and type(it) == 'table' and it or nil
end

-- waiting(owner) -> the request (w) of a position | nil
local function waiting(owner)
  local p = unpacked(call('HGET', K[3], owner))
  if p then
    return {owner = owner, lease = p[1], heartbeat = p[2], waiter_timeout = p[3], args = p[4], record = p[5], from = '',
      condition = p[6], since = p[7], steady = p[8], priority = p[9]}
  end
end

-- silent(w) -> true once it has missed heartbeats for its waiter timeout.
local function silent(w)
  return now() - w.heartbeat > w.waiter_timeout * 1000
end

-- steadily(w) -> since when the heartbeats of w have come without a gap, given that one came now. They come
-- every third of its waiter timeout, or more often, and may be late by as much. Nothing if that begins now.
local function steadily(w)
  return w and w.steady and (now() - w.heartbeat) * 3 < w.waiter_timeout * 2000 and w.steady or nil
end

-- dead(w) -> true if w is silent although another waiter was heard all the while. If none was, the server may
-- have been stalled: then w, and every other silent waiter, gets its waiter timeout once more, and is
-- admitted when its heartbeat comes. (Only the first waiters are checked: there may be thousands.)
local witness -- the position of a waiter that was heard all the while
local function dead(w)
  if not silent(w) then return false end
  if w.steady == false then return true end
  local function proves(p, gap)
    local ms = w.waiter_timeout + 0
    return p[8] and gap * 3 < 2 and p[3] + 0 <= ms and now() - p[8] > ms * 1000
  end
  if witness and proves(witness, 0) then return true end
  -- The caller, too: it may be the only live waiter, behind very many others.
  local owners, spared = {w.owner, F[1]}, {}
  for _, owner in ipairs(call('ZRANGE', K[2], 0, 31)) do owners[#owners + 1] = owner end
  for _, member in ipairs(call('ZRANGE', K[6], 0, 31)) do owners[#owners + 1] = string.match(member, '[^|]*$') end
  for i, position in ipairs(call('HMGET', K[3], unpack(owners))) do
    local p = unpacked(position)
    local gap = p and (now() - p[2]) / 1000 / p[3]
    if p and proves(p, gap) then
      witness = p
      return true
    end
    if p and p[8] ~= false and gap > 1 then
      p[2], p[8] = now(), false
      spared[#spared + 1] = owners[i]
      spared[#spared + 1] = cmsgpack.pack(p)
    end
  end
  -- A write that cannot grow comes first, so that a full Redis accepts the next one.
  call('HDEL', K[3], '')
  call('HSET', K[3], unpack(spared))
  w.heartbeat, w.steady = now(), false
  return false
end

local function drop(owner)
  call('ZREM', K[2], owner)
  call('HDEL', K[3], owner)
end

-- tombstone(owner, least): gives the owner a tombstone for a minute, as one of its requests may still be in
-- flight, or for `least` ms if that is longer. (What a rule keeps in the same key may last longer.) Removes
-- some of the expired tombstones.
local function tombstone(owner, least)
  local lasts = math.max(60000, least or 0)
  local ms = now() / 1000
  local some = call('ZRANGE', K[5], 64, 64, 'WITHSCORES')[2]
  call('ZREMRANGEBYSCORE', K[5], '-inf', some and some + 0 < ms and some or fmt('(%.0f', ms))
  call('ZADD', K[5], fmt('%.0f', ms + lasts), owner)
  call('PEXPIRE', K[5], fmt('%.0f', math.max(lasts, call('PTTL', K[5]))))
end

-- ranked(w, arrival) -> where w belongs in its class that arrived then.
local function ranked(w, arrival)
  return arrival - (w.priority or 0) * STEP
end

-- arrived(w, rank) -> the reverse.
local function arrived(w, rank)
  return rank % CLASS + (w.priority or 0) * STEP
end

-- scored(w, rank) -> the score of that position in the queue.
local function scored(w, rank)
  local class = kind.class and kind.class(w) or 0
  return class == 0 and rank or fmt('%.0f', class * CLASS + rank)
end

-- True while a waiter that this script put into a condition is there: the keys then exist, and have an
-- expiry.
local others_wait

-- forget_signalled(): once nobody waits for a signal, none can be passed on: see pass_lapsed(). What is kept of the
-- last one would outlast the positions.
local function forget_signalled()
  if call('EXISTS', K[6]) == 0 then call('HDEL', K[3], 'signalled') end
end

-- signal(condition, arrival, begins) -> the request of the live waiter that has waited longest for the
-- condition, moved into the queue, to that arrival | nil, true if there are more waiters before it than this
-- script looks at. Drops the dead waiters before it. begins: whether the queue is empty; nil if that is not
-- known.
local function signal(condition, arrival, begins)
  while rest >= 1 do
    -- '|' ends a condition's name in its members, and '}' is the character after it.
    local from, to = '[' .. condition .. '|', '(' .. condition .. '}'
    local member = call('ZRANGEBYLEX', K[6], from, to, 'LIMIT', '0', '1')[1]
    if not member then return forget_signalled() end
    rest = rest - 1
    call('ZREM', K[6], member)
    others_wait = nil
    local w = waiting(string.match(member, '[^|]*$'))
    -- A waiter whose position was lost meanwhile comes back by itself.
    local waits = w and w.condition == condition
    if waits and not dead(w) then
      call('ZADD', K[2], scored(w, fmt('%.0f', ranked(w, arrival))), w.owner)
      -- A queue that begins with this waiter expires with its positions.
      if begins == nil then begins = call('PTTL', K[2]) < 0 end
      if begins then call('PEXPIRE', K[2], call('PTTL', K[3])) end
      return w
    end
    if waits then call('HDEL', K[3], w.owner) end
  end
  return nil, true
end

-- pass_on(w, score): w leaves the queue without the lock, or has left it from that score. If it had been
-- signalled, the next waiter of its condition takes its position in the queue -> true if that waiter was not
-- found yet: a silent position of w then stays, and the next script to serve the queue passes the signal on.
local function pass_on(w, score)
  score = w.condition and (score or call('ZSCORE', K[2], w.owner))
  if not score then return end
  local _, more = signal(w.condition, arrived(w, score))
  if not more then return end
  call('ZADD', K[2], fmt('%.0f', score), w.owner)
  call('HSET', K[3], w.owner,
    cmsgpack.pack({w.lease, 0, w.waiter_timeout, w.args, w.record, w.condition, false, false, w.priority}))
  for i = 2, 3 do
    if call('PTTL', K[i]) < 0 then call('PEXPIRE', K[i], fmt('%.0f', 2 * w.waiter_timeout)) end
  end
  return true
end

-- after(last) -> the current time as an arrival, but behind the last one even if the clock was set back.
local function after(last)
  return math.max(last and last + 1 or 0, now())
end

-- behind_all() -> an arrival at the end of the queue, true if the queue is empty.
local function behind_all()
  local tail, rank = unpack(call('ZRANGE', K[2], '-1', '-1', 'WITHSCORES'))
  -- Unless the clock was set back, only a waiter of low priority ranks after now.
  if rank and rank % CLASS >= now() then return after(arrived(waiting(tail) or {}, rank)), false end
  return now(), not tail
end

-- pass_lapsed(): passes on the signal of an owner that died: it was admitted, may never have noticed, and its
-- lease expired as it was granted -> the request of the waiter that now has the signal. The field 'signalled'
-- of the positions is {owner, condition, end of that lease in ms}, while others wait for signals; they check
-- it with each heartbeat. An owner that was renewed, or left before that end, has had its signal. Done once
-- per script.
local looked
local function pass_lapsed()
  local it = not looked and unpacked(call('HGET', K[3], 'signalled'))
  looked = true
  if not it then return end
  local owner, condition, ends = unpack(it)
  local ms, left = ends - now() / 1000, kind.load(owner)
  if left and left <= ms + 50 then return end
  local w, more
  if not left and ms <= 50 then w, more = signal(condition, behind_all()) end
  -- If that waiter was not found yet, the next heartbeat continues.
  if not more then call('HDEL', K[3], 'signalled') end
  return w
end

-- entrust(w): records that w is admitted by a signal, which it may never notice. See pass_lapsed().
local function entrust(w)
  pass_lapsed()
  if not others_wait and call('EXISTS', K[6]) == 0 then return end
  call('HSET', K[3], 'signalled', cmsgpack.pack({w.owner, w.condition, now() / 1000 + w.lease}))
  if not others_wait and call('PTTL', K[3]) < 0 then
    call('PEXPIRE', K[3], fmt('%.0f', 2 * math.max(w.waiter_timeout, w.lease)))
  end
end

local function inbox(w)
  return F[3] .. string.match(w.owner, '^[^:]*')
end

-- sharded(...) -> the server's reply to a command about a sharded channel: in a cluster, one with the lock's
-- hash tag. Nothing if there are none: there is no cluster, or the server does not support them.
local function sharded(...)
  if not string.find(F[3], '{', 1, true) then return end
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err or not string.find(answer.err, 'nknown [Rs]') then return answer end
end

-- deaf(w) -> true if nobody listens at this server for the process of w. Asked before anything is announced,
-- rather than learned from announcing it: a process that listens at another server which also has these
-- messages (the previous primary, now a replica) is not counted here, and yet receives them. Without the
-- right to ask, the process is assumed to listen, and the waiter's own timer finds the grant.
local function deaf(w)
  if w.deaf == nil then
    local channel = inbox(w)
    local answer = sharded('PUBSUB', 'SHARDNUMSUB', channel) or redis.pcall('PUBSUB', 'NUMSUB', channel)
    w.deaf = answer[2] == 0
  end
  return w.deaf
end

-- tell(w, what, number, value): sends a message to the process of w. Without channel rights none can be sent.
local function tell(w, what, number, value)
  local text = fmt('%s %s %.0f %s', w.owner, what, number or 0, number and w.lease or 0)
  -- Lua's own conversion keeps only 14 digits of a large number.
  if value then text = text .. ' ' .. (type(value) == 'number' and fmt('%.0f', value) or value) end
  if not sharded('SPUBLISH', inbox(w), text) then redis.pcall('PUBLISH', inbox(w), text) end
end

-- keeps(owner) -> true if its process keeps the lock for its next hold: its id ends in '~'.
local function keeps(owner)
  return type(owner) == 'string' and string.byte(owner, -1) == 126
end

-- wanted(owner): tells a process that keeps the lock that there is a waiter, or a caller that was answered
-- busy; once per script.
local asked_for -- the owner that was told
local function wanted(owner)
  if owner == asked_for or not keeps(owner) then return end
  asked_for = owner
  tell({owner = owner}, 'wanted')
end

-- has_waiters(owner): the same for an owner that is inside, if there are waiters.
local function has_waiters(owner)
  if keeps(owner) and call('EXISTS', K[2]) == 1 then wanted(owner) end
end

-- comes_back(w) -> true while w must be waited for: because the server was stalled, until its heartbeat comes;
-- or because its inbox broke, until its process listens again. The order of the waiters must not depend on
-- which of them is the first to connect again. If the process has died instead, this ends when a heartbeat is
-- overdue; they come every third of the waiter timeout. False if the rule itself handles waiters that leave
-- without a grant, or admits all of them.
local function comes_back(w)
  if kind.on_leave then return false end
  if w.steady == false then return true end
  local most = w.waiter_timeout / 2
  if kind.whole or now() - w.heartbeat > most * 1000 or not deaf(w) then return false end
  -- For busy(): when asking again makes sense.
  w.waiter_timeout = most
  return true
end

-- carry_on(): this script has done its share, or ends a hold earlier than waiters were told. Tells one of the
-- first waiters in the queue to ask again, whose script continues. If none of them receives that, the next
-- caller to ask continues.
local function carry_on()
  carried = false
  for _, owner in ipairs(call('ZRANGE', K[2], 0, 7)) do
    local w = {owner = owner}
    if not deaf(w) then
      carried = true
      return tell(w, 'again')
    end
  end
end

-- left_to(head): the same after a release whose next waiter is waited for: nobody else would ask before the
-- next heartbeat, and a reply says when asking makes sense.
local function left_to(head)
  if head and head.away and carried == nil then carry_on() end
end

-- let_in(w, me) -> the rule's decision about w, whose turn it is. The process of a waiter that is notified by
-- a message may be dead, and must then cost no more than a silent position: so the waiter gets a first lease
-- only. (At least a second, whatever the waiter timeout.) The first renewal is for the whole lease.
local function let_in(w, me)
  if w.owner ~= me and not kind.whole then w.lease = math.min(w.lease, math.max(w.waiter_timeout, 1000)) end
  return kind.try_acquire(w)
end

-- admit_waiters(me, first) -> me's reply, if the loop admitted or rejected me; otherwise nothing, and the
-- head that may not be admitted yet, if the loop looked for one. `first` is the head, if the caller knows it.
-- Ends every script that can change who may be admitted; kind.load() must have been called. Drops dead heads,
-- and admits heads while the rule does: each is installed first, taken back if its process does not listen,
-- and announced last. An announced grant is never taken back. A process that keeps the lock is told with its
-- grant if there are waiters behind it. The number of waiters handled is bounded: see carry_on().
local function admit_waiters(me, first)
  while not (kind.is_full and kind.is_full()) do
    local head = first or call('ZRANGE', K[2], '0', '0')[1]
    first = nil
    if not head then return end
    local w = waiting(head)
    if rest < 1 then
      if carried == nil then carry_on() end
      return nil, w or {owner = head, waiter_timeout = F[4], heartbeat = now()}
    end
    if not w or dead(w) then
      rest = rest - 1
      if not (w and pass_on(w)) then
        drop(head)
        if w and kind.on_leave then kind.on_leave(w, 'silent') end
      end
    elseif head ~= me and comes_back(w) then
      w.away = true
      return nil, w
    else
      local why = kind.reject and kind.reject(w)
      local ok, n, value
      if not why then
        ok, n, value = let_in(w, me)
        if not ok then return nil, w end
      end
      rest = rest - 2
      local there = head == me or not ok or not deaf(w)
      local score = not there and w.condition and call('ZSCORE', K[2], head)
      drop(head)
      if there and ok and w.condition then entrust(w) end
      if head == me then
        admit_waiters()
        if ok then has_waiters(head) end
        return why and {-1, why} or {1, n, w.lease, value}
      end
      if not there then
        rest = rest - 2
        kind.release(head)
        kind.load(head)
        if score then pass_on(w, score) end
        if kind.on_leave then kind.on_leave(w, 'unheard') end
      else
        tell(w, why and 'no:' .. why or 'in', n, value)
        if ok then has_waiters(head) end
      end
    end
  end
end
