-- inspect: the holders and the waiters, page after page. Writes nothing.
--
-- ARGV 5 page: '' or what the one before returned   6 args, of a kind that has several modes
-- ->  {last number, {owner, remaining ms (-1: no expiry), record, ...}, {owner, record, ...}, what the rule
--     says about its state}; as a fifth, if this is not all, the next page
--@ parts
kind.load('')
local number = tonumber(call('GET', K[4]) or 0)
-- What the rule says about its state is true once all expired holders are out of it.
if kind.describe and kind.more and kind.more() then return {number, {}, {}, {}, F[5] or ''} end
local part, from = string.match(F[5] or '', '^(%a)(.*)$')
local holders, places, state, page = {}, {}, {}, nil
if part ~= 'q' then
  holders, page = kind.holders(from)
  state = kind.describe and kind.describe(from) or state
  page = page and 'h' .. page
end
if not page then
  local first = part == 'q' and '(' .. from or '-inf'
  local some = call('ZRANGE', K[2], first, '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
  for i = 1, #some, 2 do
    local w = waiting(some[i])
    if w and not silent(w) then
      places[#places + 1] = w.owner
      places[#places + 1] = w.record
    end
  end
  page = some[200] and 'q' .. some[200]
end
return {number, holders, places, state, page}
