-- inspect: the holders and the waiters, page by page. Writes nothing.
--
-- ARGV 5 page: '' or as returned with the previous page   6 args, for a kind with several modes
--      7 '1': in detail
-- ->  {last number (once it is no longer kept, the first holder's), {owner, remaining ms (-1: no expiry),
--     record, ...}, {owner, record, ...}, what the rule says about its state}; as a fifth, if this is not all,
--     the next page (in detail: or ''). If more holds have expired than one script removes, only these five
--     with empty lists, and the page must be requested again. In detail as a sixth {1 the holder only stays |
--     0, ...}, as a seventh {arrival, us since its last heartbeat, ...} for the queue positions, and on the
--     last page as an eighth the first hundred waiters for signals: {condition, owner, record, arrival, us
--     since its last heartbeat, ...}
--@ parts
kind.load('')
local number = tonumber(call('GET', K[4])) or 0
-- The rule's description of its state is correct only once all expired holders are out of it.
if kind.inspect and kind.more and kind.more() then return {number, {}, {}, {}, F[5] or ''} end
local part, from = string.match(F[5] or '', '^(%a)(.*)$')
local holders, positions, state, page, times = {}, {}, {}, nil, {}
if part ~= 'q' then
  holders, page = kind.holders(from)
  state = kind.inspect and kind.inspect(from) or state
  page = page and 'h' .. page
  -- A hold may last for longer than the last number is kept. Where it has no record of ours, that was its only
  -- number, and to load it would write another.
  if number == 0 and holders[1] and #(holders[3] or '') > 1 then
    number = tonumber(select(2, kind.load(holders[1])) or 0)
  end
end
if not page then
  local first = part == 'q' and '(' .. from or '-inf'
  local some = call('ZRANGE', K[2], first, '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #some, 2 do
    local w = waiting(some[i])
    if w and not silent(w) then
      positions[#positions + 1] = w.owner
      positions[#positions + 1] = w.record
      times[#times + 1] = fmt('%.0f', arrived(w, some[i + 1]))
      times[#times + 1] = fmt('%.0f', now() - w.heartbeat)
    end
  end
  page = some[200] and 'q' .. some[200]
end
if F[7] ~= '1' then return {number, holders, positions, state, page} end
local stays, signals = {}, {}
for i = 1, #holders, 3 do stays[#stays + 1] = call('ZSCORE', K[5], holders[i]) and 1 or 0 end
-- (For a kind without conditions, this key has other content.)
for _, member in ipairs(page and {} or call('ZRANGE', K[6], 0, 99)) do
  local condition, since, owner = string.match(member, '^(.*)|(%d+)|([^|]*)$')
  local w = owner and waiting(owner)
  if w and not silent(w) then
    for _, it in ipairs({condition, owner, w.record, since, fmt('%.0f', now() - w.heartbeat)}) do
      signals[#signals + 1] = it
    end
  end
end
return {number, holders, positions, state, page or '', stays, times, signals}
