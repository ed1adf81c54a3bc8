-- How an owner asks: once, or for a queue position.

-- has_tombstone(owner) -> true if it has a tombstone.
local function has_tombstone(owner)
  return call('ZSCORE', K[5], owner)
end

-- last() -> the last grant number, for busy replies.
local function last()
  return kind.last and kind.last() or tonumber(call('GET', K[4])) or 0
end

-- lifetime(w) -> how long, in ms, the positions of silent waiters live at least, so that they survive a stall
-- of the server: five waiter timeouts, at most half a minute, but never less than one waiter timeout. They
-- get twice that, so that few requests have to extend it.
local function lifetime(w)
  return math.max(w.waiter_timeout, math.min(30000, 5 * w.waiter_timeout))
end

-- place(w, us, least, steady, new): writes its queue position, with a heartbeat now (us), and extends the expiry of
-- both keys, which expire together, to its lifetime (least). new: true if the queue begins with this position, and so
-- has no expiry yet; false if it existed before, with the expiry of the positions; nil if that is not known.
local function place(w, us, least, steady, new)
  call('HSET', K[3], w.owner,
    cmsgpack.pack({w.lease, us, w.waiter_timeout, w.args, w.record, w.condition, w.since, steady, w.priority}))
  local positions = call('PTTL', K[3])
  local ttl = new and -1 or positions
  if new == nil then ttl = math.min(positions, call('PTTL', K[2])) end
  if ttl < least then
    local ms = string.format('%.0f', math.max(positions, 2 * least))
    call('PEXPIRE', K[2], ms)
    call('PEXPIRE', K[3], ms)
  end
end

-- enqueue(w) -> arrival, true if w had no position. Gives w a position: at the end of its class, or the one
-- it had before (w.arrival, from an earlier reply). If w has a position, this records its new request and a
-- heartbeat.
local function enqueue(w)
  local arrival, begins, new = w.arrival, nil, true
  if arrival == '' then
    arrival, begins = behind_all()
    arrival = fmt('%.0f', ranked(w, arrival))
  end
  if call('ZADD', K[2], 'NX', scored(w, arrival), w.owner) == 0 then
    arrival, new = fmt('%.0f', call('ZSCORE', K[2], w.owner) % CLASS), false
    w.steady = w.steady or steadily(waiting(w.owner))
  end
  place(w, now(), lifetime(w), w.steady or now(), begins)
  return arrival, new
end

-- busy(w, arrival, ahead, unheard) -> {0, last number, ms until asking again makes sense, arrival}. Asking
-- again makes sense when a hold expires, or when the head that is ahead exceeds its waiter timeout (a full
-- lock comes free before that counts), and never later than w's own next heartbeat. Followed by 1 if nobody
-- listens here for w's process (unheard); or by 2 if this script has left some work to the next one, so that
-- the lock may not be busy: then w should ask at once, unless another waiter continues that work.
local function busy(w, arrival, ahead, unheard)
  local ms = math.min(w.waiter_timeout, w.lease) / 3
  ms = math.min(ms, kind.next_expiry(kind.is_full and kind.is_full()) or ms)
  if ahead and ahead.owner ~= w.owner then
    ms = math.min(ms, ahead.waiter_timeout - (now() - ahead.heartbeat) / 1000)
  end
  local more = kind.more and kind.more()
  if more or carried == false then ms = 1 end
  local left_over = (more or carried ~= nil) and 2 or nil
  return {0, last(), math.max(1, math.ceil(ms)), arrival, unheard and 1 or left_over}
end

-- try(w) -> a reply. Takes no position, and passes no waiter.
local function try(w)
  -- w may have a position, from a request that had no reply.
  local placed = call('ZSCORE', K[2], w.owner)
  local _, ahead = admit_waiters()
  local why = kind.reject and kind.reject(w)
  if why then return {-1, why} end
  -- If it was admitted from that position, it was notified, and must not be admitted again.
  if not ahead and not (placed and kind.load(w.owner)) then
    local ok, n, value = kind.try_acquire(w)
    if ok then return {1, n, w.lease, value} end
  end
  wanted(kind.is_full and kind.is_full())
  local score = call('ZSCORE', K[2], w.owner)
  return busy(w, score and fmt('%.0f', score % CLASS) or '', ahead)
end

-- share(w, left, number, value) -> a reply to a holder that asks whether more threads of its process may
-- join: not while the rule admits no other owner, nor ahead of a waiter.
local function share(w, left, n, value)
  local _, ahead = admit_waiters()
  if not left then return {-1, 'gone'} end
  if ahead or kind.is_full and kind.is_full() then return busy(w, '', ahead) end
  return {1, n, left, value}, true
end

-- threads_beside(w) -> how many threads wait for which w does not ask, as far as they were heard. (A thousand
-- positions are more than any request may have before it.)
local function threads_beside(w)
  local n, owners = 0, call('ZRANGE', K[2], 0, 999)
  for i, position in ipairs(owners[1] and call('HMGET', K[3], unpack(owners)) or {}) do
    local p = owners[i] ~= w.owner and unpacked(position)
    if p and now() - p[2] <= p[3] * 1000 then n = n + (string.match(p[5] or '', '^%d+') or 1) end
  end
  return n
end

-- remain(w, arrival, new, ahead) -> a busy reply: w has that queue position, new or not, behind `ahead`.
local function remain(w, arrival, new, ahead)
  local n = w.most and threads_beside(w)
  -- In the step that would have given it a place. Those behind it may go ahead of it.
  if n and new and w.arrival == '' and n >= w.most + 0 then
    drop(w.owner)
    admit_waiters()
    return {-1, fmt('queue-full-%d-threads-wait', n)}
  end
  if new and kind.on_wait then kind.on_wait(w) end
  if kind.on_busy then kind.on_busy(w) end
  -- Repeated at each heartbeat, as the previous message may have been lost.
  wanted(kind.is_full and kind.is_full())
  local answer = busy(w, arrival, ahead, deaf(w))
  if n then answer[5], answer[6] = answer[5] or false, n end
  return answer
end

-- join(w) -> a reply: admitted, rejected, or at its position in the queue.
local function join(w)
  local why = kind.reject and kind.reject(w)
  if why then
    drop(w.owner)
    admit_waiters()
    return {-1, why}
  end
  -- If the lock is not full and there is no waiter, w need not wait either.
  if not (kind.is_full and kind.is_full()) and call('EXISTS', K[2]) == 0 then
    local ok, n, value = kind.try_acquire(w)
    if ok then return {1, n, w.lease, value} end
  end
  local arrival, new = enqueue(w)
  local answer, ahead = admit_waiters(w.owner)
  return answer or remain(w, arrival, new, ahead)
end
