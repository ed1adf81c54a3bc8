-- inspect: who holds, who waits. Writes nothing.
--
-- ARGV 6 args, of a kind that has several modes
-- ->  {last number, {owner, remaining ms (-1: no end), record, ...}, {owner, record, ...}, what the rule
--     says of its state}
--@ prelude clock alien queue kind
kind.look('')
local places = {}
for _, owner in ipairs(call('ZRANGE', K[2], 0, -1)) do
  local w = waiting(owner)
  if w and not silent(w) then
    places[#places + 1] = owner
    places[#places + 1] = w.record
  end
end
return {tonumber(call('GET', K[4]) or 0), kind.holders(), places, kind.state and kind.state() or {}}
