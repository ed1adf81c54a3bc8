-- The order of those who wait, and the one loop that lets them in.
--
-- A place is {lease ms, beat, window ms, args, record}: what its owner asked for and when it
-- was last heard (server time). Order and liveness are kept apart: a beat never moves a place.

local fmt = string.format
local CLASS = 1125899906842624 -- 2^50: arrivals of one order class stay below it

-- waiting(owner) -> the request (w) behind a place | nil
local function waiting(owner)
  local place = call('HGET', K[3], owner)
  if place then
    local p = cmsgpack.unpack(place)
    return {owner = owner, lease = p[1], beat = p[2], window = p[3], args = p[4], record = p[5], from = ''}
  end
end

-- silent(w) -> true once nothing was heard of it for its window: it is dead.
local function silent(w)
  return now() - w.beat > w.window * 1000
end

local function drop(owner)
  call('ZREM', K[2], owner)
  call('HDEL', K[3], owner)
end

-- Both keys live as long as the longest window in them.
local function live(window)
  local ttl = window
  for i = 2, 3 do ttl = math.max(ttl, call('PTTL', K[i])) end
  for i = 2, 3 do call('PEXPIRE', K[i], ttl) end
end

-- enqueue(w, arrival): a new place at the end of its class, or at the place it had before
-- (arrival, from an earlier answer); for one that has a place, its new wishes and a beat.
local function enqueue(w, arrival)
  if not call('ZSCORE', K[2], w.owner) then
    if arrival == '' then
      arrival = math.max((call('HGET', K[3], '#') or 0) + 1, now())
      call('HSET', K[3], '#', fmt('%.0f', arrival))
    end
    local class = kind.class and kind.class(w) or 0
    call('ZADD', K[2], fmt('%.0f', class * CLASS + arrival), w.owner)
  end
  call('HSET', K[3], w.owner, cmsgpack.pack({w.lease, now(), w.window, w.args, w.record}))
  live(w.window)
end

-- tell(w, what, number) -> true when the process of w heard it. Without channel rights nobody
-- can be told: believed heard, and the waiter's own timer finds the grant.
local function tell(w, what, number)
  local channel = F[3] .. string.match(w.owner, '^[^:]*')
  local text = fmt('%s %s %.0f %s', w.owner, what, number or 0, number and w.lease or 0)
  local heard = redis.pcall('PUBLISH', channel, text)
  return type(heard) ~= 'number' or heard > 0
end

-- settle(me) -> me's answer, when the loop let me in or refused me.
-- Ends every script that can change who may come in; kind.look() has been called. Drops heads
-- that are silent, lets heads in while the rule does: installed first, told second, taken
-- back when their process is not there to hear it.
local function settle(me)
  while true do
    local head = call('ZRANGE', K[2], 0, 0)[1]
    if not head then
      call('DEL', K[3])
      return
    end
    local w = waiting(head)
    if not w or silent(w) then
      drop(head)
      if w and kind.left then kind.left(w, 'silent') end
    else
      local why = kind.refuse and kind.refuse(w)
      local ok, n
      if not why then
        ok, n = kind.admit(w)
        if not ok then return end
      end
      drop(head)
      if head == me then
        settle()
        return why and {-1, why} or {1, n, w.lease}
      end
      if not tell(w, why and 'no:' .. why or 'in', n) and ok then
        kind.dismiss(head)
        kind.look(head)
        if kind.left then kind.left(w, 'unheard') end
      end
    end
  end
end

-- busy(w) -> {0, last number, ms until asking again makes sense, arrival}: when a hold lapses,
-- when a silent head is out of its window, and never later than w's own next beat.
local function busy(w)
  local ms = math.min(w.window, w.lease) / 3
  ms = math.min(ms, kind.soon() or ms)
  local head = call('ZRANGE', K[2], 0, 0)[1]
  if head and head ~= w.owner then
    local ahead = waiting(head)
    if ahead then ms = math.min(ms, ahead.window - (now() - ahead.beat) / 1000) end
  end
  local score = call('ZSCORE', K[2], w.owner)
  local arrival = score and fmt('%.0f', score % CLASS) or ''
  return {0, tonumber(call('GET', K[4]) or 0), math.max(1, math.ceil(ms)), arrival}
end

-- ask(w, how, arrival) -> an answer, for how = 'try' (once), 'wait' (take or keep a place),
-- 'keep' (keep a place, never make one).
local function ask(w, how, arrival)
  if call('ZSCORE', K[5], w.owner) then return {-1, 'over'} end
  local left, n = kind.look(w.owner)
  if left then return {1, n, left} end
  if how == 'keep' then
    -- A write that cannot grow comes first: after it a full Redis takes the beat as well.
    call('HDEL', K[3], '')
    if not (call('ZSCORE', K[2], w.owner) and call('HEXISTS', K[3], w.owner) == 1) then
      settle()
      return {-1, 'gone'}
    end
  end
  local ok
  if kind.passes and kind.passes(w) then
    ok, n = kind.admit(w)
    if ok then
      drop(w.owner)
      settle()
      return {1, n, w.lease}
    end
  end
  if how == 'try' then
    settle()
    if call('EXISTS', K[2]) == 0 then
      local why = kind.refuse and kind.refuse(w)
      if why then return {-1, why} end
      ok, n = kind.admit(w)
      if ok then return {1, n, w.lease} end
    end
    return busy(w)
  end
  local why = kind.refuse and kind.refuse(w)
  if why then
    drop(w.owner)
    settle()
    return {-1, why}
  end
  enqueue(w, arrival)
  return settle(w.owner) or busy(w)
end
