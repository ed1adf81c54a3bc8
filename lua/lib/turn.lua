-- turn: another library's waiters have no queue position, and take a lock when they find it free. So a
-- release that is announced to them leaves the lock to them for a moment: otherwise waiters of this library
-- would hand it on among themselves forever. The end of their turn is the score of the member `turn` of K[5],
-- in ms. Clients of this library that listen to the other library's channel also listen to F[3] .. channel,
-- which tells the two apart.

-- their_turn() -> the end of their turn, in ms | nothing: it is not their turn
local function their_turn()
  local ends = tonumber(call('ZSCORE', K[5], 'turn'))
  return ends and ends > now() / 1000 and ends or nil
end

-- others(count, channel) -> whether clients of another library listen there; true without the right to ask
local function others(count, channel)
  local listen = redis.pcall('PUBSUB', count, channel, F[3] .. channel)
  return listen.err or listen[2] > listen[4]
end

-- announce_free(channel, text, lasts, rest): publishes the text for a release -> the end of the turn that
-- begins | nothing: no client of another library listens, or their last turn ended less than `rest` ms ago
local function announce_free(channel, text, lasts, rest)
  -- In a cluster, another library may listen to a sharded channel, in the lock's slot, or to a classic one.
  local receivers, count = string.find(channel, '{', 1, true) and sharded('SPUBLISH', channel, text), 'SHARDNUMSUB'
  if type(receivers) ~= 'number' or receivers == 0 or not others(count, channel) then
    receivers, count = redis.pcall('PUBLISH', channel, text), 'NUMSUB'
    if type(receivers) ~= 'number' or receivers == 0 or not others(count, channel) then return end
  end
  local ms = now() / 1000
  if rest > 0 and (call('ZSCORE', K[5], 'rest') or 0) + 0 > ms then return end
  local ends = ms + lasts
  call('ZADD', K[5], fmt('%.0f', ends), 'turn')
  if rest > 0 then call('ZADD', K[5], fmt('%.0f', ends + rest), 'rest') end
  call('PEXPIRE', K[5], math.max(lasts + rest, call('PTTL', K[5])))
  -- The first waiter asks again, learns whose turn it is, and listens for the end of that turn.
  local first = call('ZRANGE', K[2], 0, 0)[1]
  if first then tell({owner = first}, 'again') end
  return ends
end
