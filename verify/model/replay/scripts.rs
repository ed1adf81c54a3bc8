//! The scripts that read what the lock's scripts stored, and edit its times.

/// Returns {{holder's owner, its number, end - now, the rule's value, whether it writes, …}, last number of
/// any owner, fence, {times to live}, {owner, args, arrival, lease, age µs, waiter timeout, …}, {owner, end -
/// now, …}}, with numbers as text; before that, publishes on the mark's channel that it is done.
pub(super) const VIEW: &str = "
local call, fmt = redis.call, string.format
local t = call('TIME')
local now = t[1] * 1000000 + t[2] - 1577836800000000
local ttl, holders, positions, tombstones = {}, {}, {}, {}
local function holder(...)
  for _, it in ipairs({...}) do holders[#holders + 1] = it end
end
local left = fmt('%.0f', call('PTTL', KEYS[1]))
local is = call('TYPE', KEYS[1]).ok
local owner, n, writer, recent, permits
if is == 'hash' then
  owner, n, writer, recent, permits =
    unpack(call('HMGET', KEYS[1], 'owner', 'number', 'writer', 'last', 'permits'))
end
if is == 'string' then holder(call('GET', KEYS[1]), '', left, '', '') end
if owner then holder(owner, n, left, '', '') end
local all = (recent or permits) and call('HGETALL', KEYS[1]) or {}
for i = 1, #all, 2 do
  if string.find(all[i], ':', 1, true) then
    local e = cmsgpack.unpack(all[i + 1])
    -- A lapsed holder is taken out by the next script that looks.
    if e[1] > now / 1000 then
      holder(all[i], fmt('%.0f', e[2]), fmt('%.0f', e[1] - now / 1000), tostring(e[3] or ''),
        writer == all[i] and 'writes' or '')
    end
  end
end
for i = 1, 5 do ttl[i] = call('PTTL', KEYS[i]) end
for i, it in ipairs(call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')) do
  if i % 2 == 1 then positions[#positions + 1] = it else
    local p = cmsgpack.unpack(call('HGET', KEYS[3], positions[#positions]))
    positions[#positions + 1] = p[4]
    for _, x in ipairs({it + 0, p[1], now - p[2], p[3]}) do
      positions[#positions + 1] = fmt('%.0f', x)
    end
  end
end
for i, it in ipairs(call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')) do
  tombstones[i] = i % 2 == 1 and it or fmt('%.0f', it - now / 1000)
end
call('PUBLISH', ARGV[1], 'mark')
return {holders, recent or '', call('GET', KEYS[4]) or '0', ttl, positions, tombstones, call('HLEN', KEYS[3])}";

/// Sets how long the keys live, how long ago positions were heard of, and how long tombstones last. ARGV: 4
/// times to live (state, queue, tombstones, conditions), the number of positions, {owner, age ms}…, {owner,
/// ms}…; `=` and an owner stand for a holder that expires individually, and the first of those expires in `=`
/// ms.
pub(super) const WIND: &str = "
local call = redis.call
local t = call('TIME')
local now = t[1] * 1000000 + t[2] - 1577836800000000
local positions = tonumber(ARGV[5])
local ends, soon = {}, false
for i = 6, #ARGV, 2 do
  if ARGV[i] == '~' then
    local owner, ms = string.match(ARGV[i + 1], '(%S+) (%S+)')
    local p = cmsgpack.unpack(call('HGET', KEYS[3], owner))
    p[8] = ms ~= '-' and now - ms * 1000
    call('HSET', KEYS[3], owner, cmsgpack.pack(p))
  elseif ARGV[i] == '=' then soon = ARGV[i + 1]
  elseif string.sub(ARGV[i], 1, 1) == '=' then ends[string.sub(ARGV[i], 2)] = ARGV[i + 1]
  elseif i < 6 + 2 * positions then
    local p = cmsgpack.unpack(call('HGET', KEYS[3], ARGV[i]))
    p[2] = now - ARGV[i + 1] * 1000
    call('HSET', KEYS[3], ARGV[i], cmsgpack.pack(p))
  else
    call('ZADD', KEYS[5], string.format('%.0f', now / 1000 + ARGV[i + 1]), ARGV[i])
  end
end
local is = call('TYPE', KEYS[1]).ok
local permits = is == 'hash' and call('HEXISTS', KEYS[1], 'permits') == 1
if permits or is == 'hash' and call('HEXISTS', KEYS[1], 'last') == 1 then
  local all = call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], ':', 1, true) then
      local e = cmsgpack.unpack(all[i + 1])
      -- A lapsed holder is still there.
      if not ends[all[i]] then soon = -1 end
      e[1] = now / 1000 + (ends[all[i]] or -1)
      if permits then
        e[1] = math.floor(e[1])
        call('ZADD', KEYS[6], string.format('%.0f', e[1]), all[i])
      end
      call('HSET', KEYS[1], all[i], cmsgpack.pack(e))
    end
  end
  if not permits then call('HSET', KEYS[1], 'soon', string.format('%.0f', now / 1000 + soon)) end
end
call('PEXPIRE', KEYS[2], ARGV[2])
call('PEXPIRE', KEYS[3], ARGV[2])
call('PEXPIRE', KEYS[5], ARGV[3])
-- Permits are their users' own, and end never.
if not permits then
  call('PEXPIRE', KEYS[1], ARGV[1])
  call('PEXPIRE', KEYS[6], ARGV[4])
end
return {}";
