-- turn: another library's waiters have no queue position, and take a lock when they find it free. So a release that
-- they are told of leaves the lock to them for a moment: otherwise waiters of this library would hand it on among
-- themselves for ever. The end of their turn is the member `turn` of K[5], in ms. Clients of this library that listen
-- to the other's channel also listen to F[3] .. channel, and are told apart from the others by that.

-- their_turn() -> its end, in ms | nothing: it is not their turn
local function their_turn()
  local ends = tonumber(call('ZSCORE', K[5], 'turn'))
  return ends and ends > now() / 1000 and ends or nil
end

-- announce_free(channel, text, lasts, rest): a release publishes that text -> the end of the turn that begins |
-- nothing: no client of another library listens, or their last turn ended less than `rest` ms ago
local function announce_free(channel, text, lasts, rest)
  local told = redis.pcall('PUBLISH', channel, text)
  if type(told) ~= 'number' or told == 0 then return end
  local listen, ms = redis.pcall('PUBSUB', 'NUMSUB', channel, F[3] .. channel), now() / 1000
  -- (Without the right to ask, all of them may be others.)
  if not listen.err and listen[2] <= listen[4] then return end
  if rest > 0 and (call('ZSCORE', K[5], 'rest') or 0) + 0 > ms then return end
  local ends = ms + lasts
  call('ZADD', K[5], fmt('%.0f', ends), 'turn')
  if rest > 0 then call('ZADD', K[5], fmt('%.0f', ends + rest), 'rest') end
  call('PEXPIRE', K[5], math.max(lasts + rest, call('PTTL', K[5])))
  -- The first waiter asks again, hears whose turn it is, and listens for its end.
  local first = call('ZRANGE', K[2], 0, 0)[1]
  if first then tell({owner = first}, 'again') end
  return ends
end
