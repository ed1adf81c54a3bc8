-- How an owner asks: once, or for a place in the queue.

-- barred(owner) -> true when its tenure has ended for good.
local function barred(owner)
  return call('ZSCORE', K[5], owner)
end

-- enqueue(w, arrival) -> arrival. A new place at the end of its class, or at the place it had
-- before (arrival, from an earlier answer); for one that has a place, its new wishes and a beat.
local function enqueue(w, arrival)
  local last
  if arrival == '' then
    -- Behind whoever is last, should the clock have been set back.
    last = call('ZRANGE', K[2], -1, -1, 'WITHSCORES')[2]
    arrival = fmt('%.0f', math.max(last and last % CLASS + 1 or 0, now()))
  end
  local class = kind.class and kind.class(w) or 0
  if call('ZADD', K[2], 'NX', fmt('%.0f', class * CLASS + arrival), w.owner) == 0 then
    arrival = fmt('%.0f', call('ZSCORE', K[2], w.owner) % CLASS)
  end
  call('HSET', K[3], w.owner, cmsgpack.pack({w.lease, now(), w.window, w.args, w.record}))
  -- Both keys outlive the longest window in them; twice that, so that few asks need to see to it.
  -- They get their ends together: a queue that was there before has that of its places.
  local ttl = call('PTTL', K[3])
  if not last then ttl = math.min(ttl, call('PTTL', K[2])) end
  if ttl < w.window + 0 then
    call('PEXPIRE', K[2], 2 * w.window)
    call('PEXPIRE', K[3], 2 * w.window)
  end
  return arrival
end

-- busy(w, arrival, ahead) -> {0, last number, ms until asking again makes sense, arrival}: when
-- a hold lapses, when the head that is ahead is out of its window (a full lock comes free before
-- that counts), and never later than w's own next beat.
local function busy(w, arrival, ahead)
  local ms = math.min(w.window, w.lease) / 3
  ms = math.min(ms, kind.soon() or ms)
  if ahead and ahead.owner ~= w.owner then
    ms = math.min(ms, ahead.window - (now() - ahead.beat) / 1000)
  end
  return {0, tonumber(call('GET', K[4]) or 0), math.max(1, math.ceil(ms)), arrival}
end

-- try(w) -> an answer, without taking a place. Nobody who waits is passed.
local function try(w)
  local _, ahead = settle()
  if not ahead then
    local why = kind.refuse and kind.refuse(w)
    if why then return {-1, why} end
    local ok, n = kind.admit(w)
    if ok then return {1, n, w.lease} end
  end
  -- It may have a place, from an ask that had no answer.
  local score = call('ZSCORE', K[2], w.owner)
  return busy(w, score and fmt('%.0f', score % CLASS) or '', ahead)
end

-- join(w, arrival) -> an answer: in, refused, or in its place in the queue.
local function join(w, arrival)
  local why = kind.refuse and kind.refuse(w)
  if why then
    drop(w.owner)
    settle()
    return {-1, why}
  end
  arrival = enqueue(w, arrival)
  local answer, ahead = settle(w.owner)
  return answer or busy(w, arrival, ahead)
end
