-- inventory: units for sale, reservations of some of them, and a lock that is available as long as units are
-- left. A hash {kind, lock}; for each SKU `stocked|<sku>`, `available|<sku>`, `reserved|<sku>`, `sold|<sku>`;
-- for each reservation, under its owner id, {end ms, number, record, id or '', ms to remember the id,
-- customer or '', units, sku, ...}, and `id|<id>`, the owner that has this id; for each customer with a limit
-- `customer|<customer>|<sku>`, the units that the customer reserved or bought. K[6] has the reservations by
-- their expiry. Besides the tombstones, K[5] has `id|<id>` for each sold order and `done|<request>` for each
-- change. w.args is 'take|<id>|<ms>|<customer>|<limit>|<units>|<sku>|...' for a reservation, which never
-- waits, or 'lock|<units>|<sku>'. The stock is its users' state: the key does not expire.
kind.tag = 'inventory'
-- The lock's holder as last read or written, {owner, end ms, number, record}.
local held
-- Some stock is less than before; some SKU is sold out.
local less, gone
-- More reservations have expired than this script removes: more units may be available than it seems.
local late
-- The owner whose request was weighed, what permanently prevents it, and what to write for the units that it
-- takes if nothing does.
local weighed, obstacle, taken
local read, words -- the last arguments that were split, and their words
local shown -- with args 'stock': the SKUs of this page

-- parts(args) -> the words between the bars
local function parts(args)
  if args == read then return words end
  read, words = args, {}
  for word in string.gmatch(args .. '|', '([^|]*)|') do words[#words + 1] = word end
  return words
end

-- say(text, ...) -> the text as the single word that reject() returns, with the names put in for its %s
local function say(text, ...)
  local names = {...}
  for i, name in ipairs(names) do
    names[i] = string.gsub(name, '[^%w_.%%]', function(c) return string.format('%%%02X', string.byte(c)) end)
  end
  return (string.gsub(string.format(text, unpack(names)), '[ "]', {[' '] = '-', ['"'] = '%22'}))
end

-- finish(owner, entry, count, most): moves the units of a reservation to that count, for at most `most` SKUs
-- -> for how many. If these were all, removes the reservation; otherwise marks it as expired, and leaves the
-- rest of it to the next script. The first write cannot grow.
local function finish(owner, entry, count, most)
  local final, id = #entry, 'id|' .. entry[4]
  local partly = most and final - 6 > 2 * most
  if partly then final = 6 + 2 * most end
  if partly then call('HDEL', K[1], '') else call('HDEL', K[1], owner, id) end
  local customer = entry[6] ~= '' and count == 'available' and 'customer|' .. entry[6] .. '|'
  local fields, new, none, at = {}, {}, {}, 1
  for i = 8, final, 2 do
    fields[#fields + 1] = 'reserved|' .. entry[i]
    fields[#fields + 1] = count .. '|' .. entry[i]
    if customer then fields[#fields + 1] = customer .. entry[i] end
  end
  local before = call('HMGET', K[1], unpack(fields))
  local function is(n)
    new[#new + 1], new[#new + 2] = fields[at], string.format('%.0f', n)
    at = at + 1
  end
  for i = 7, final, 2 do
    is((before[at] or 0) - entry[i])
    is((before[at] or 0) + entry[i])
    local has = customer and (before[at] or 0) - entry[i]
    if has and has < 1 then
      none[#none + 1] = fields[at]
      at = at + 1
    elseif has then
      is(has)
    end
  end
  if none[1] then call('HDEL', K[1], unpack(none)) end
  if partly then
    local _, number, record, name, ms, of = unpack(entry, 1, 6)
    new[#new + 1] = owner
    new[#new + 1] = cmsgpack.pack({0, number, record, name, ms, of, unpack(entry, final + 1)})
  else
    call('ZREM', K[6], owner)
  end
  call('HSET', K[1], unpack(new))
  return (final - 6) / 2
end

-- give_back(owner, ms, most): gives the units of that reservation back if it has expired by then -> of how
-- many SKUs | nothing
local function give_back(owner, ms, most)
  local entry = call('HGET', K[1], owner)
  entry = entry and cmsgpack.unpack(entry)
  return entry and entry[1] <= ms and finish(owner, entry, 'available', most) or nil
end

-- short(sku, n, stocked) -> why there can never be that many units of the SKU | nothing
local function short(sku, n, stocked)
  if not stocked then return say('unknown SKU "%s": add_stock comes first', sku) end
  if n + 0 > stocked + 0 then return say('only %s of "%s" were ever stocked', stocked, sku) end
end

-- weigh(w) -> what permanently prevents a reservation | nothing. If there are enough units now, sets `taken`
-- to what must be written for the stock and the customer.
local function weigh(w)
  if weighed == w.owner then return obstacle end
  weighed, obstacle, taken = w.owner, nil, nil
  local want = parts(w.args)
  local id, customer, limit = want[2], want[4], want[5]
  local fields, free, of = {'id|' .. id}, 2, 'customer|' .. customer .. '|'
  for i = 7, #want, 2 do
    local sku = want[i]
    fields[free], fields[free + 1] = 'stocked|' .. sku, 'available|' .. sku
    fields[free + 2], fields[free + 3] = 'reserved|' .. sku, of .. sku
    free = free + 4
  end
  local state, new = call('HMGET', K[1], unpack(fields)), {}
  if id ~= '' then
    local sold = call('ZSCORE', K[5], 'id|' .. id)
    if state[1] and give_back(state[1], now() / 1000) then
      weighed = nil
      return weigh(w)
    end
    obstacle = sold and sold * 1000 > now() and say('conflict order "%s" was sold', id)
      or state[1] and say('conflict order "%s" has a reservation', id)
    if obstacle then return obstacle end
  end
  local enough = true
  for i = 6, #want, 2 do
    local n, sku, at = want[i] + 0, want[i + 1], 2 * i - 10
    local stocked, available, reserved, has = unpack(state, at, at + 3)
    obstacle = short(sku, want[i], stocked)
      or customer ~= '' and (has or 0) + n > limit + 0
        and say('customer "%s" has %s of "%s" and may have %s', customer, has or '0', sku, limit)
    if obstacle then return obstacle end
    enough = enough and available + 0 >= n
    new[#new + 1], new[#new + 2] = fields[at + 1], string.format('%.0f', available - n)
    new[#new + 1], new[#new + 2] = fields[at + 2], string.format('%.0f', (reserved or 0) + n)
    if customer ~= '' then new[#new + 1], new[#new + 2] = fields[at + 3], string.format('%.0f', (has or 0) + n) end
    gone = gone or enough and available + 0 == n
  end
  taken = enough and new
end

-- Removes some of the expired reservations, up to fifty SKUs in all: a script must be short.
function kind.load(owner)
  local state = fetch('HMGET', K[1], 'kind', 'lock', owner)
  if state[1] ~= kind.tag and (state[1] or call('EXISTS', K[1]) == 1) then foreign_key() end
  held = state[2] and cmsgpack.unpack(state[2])
  local ms, skus = now() / 1000, 50
  local until_now = {K[6], '-inf', string.format('%.0f', math.floor(ms)), 'BYSCORE', 'LIMIT', 0, 30}
  local lapsed = call('ZRANGE', unpack(until_now))
  for _, it in ipairs(lapsed) do
    if skus < 1 then break end
    local entry = call('HGET', K[1], it)
    entry = entry and cmsgpack.unpack(entry)
    -- There is no entry if the stock was deleted by hand.
    if entry then skus = skus - finish(it, entry, 'available', skus) else call('ZREM', K[6], it) end
  end
  late = #lapsed == 30 or skus < 1
  if held and held[2] <= ms then
    call('HDEL', K[1], 'lock')
    held = nil
  end
  if held and held[1] == owner then return math.ceil(held[2] - ms), held[3] end
  local entry = state[3] and cmsgpack.unpack(state[3])
  if entry and entry[1] > ms then return math.ceil(entry[1] - ms), entry[2] end
  -- This owner's reservation may be one of those that were not removed.
  if entry and late then give_back(owner, ms) end
end

function kind.more()
  return late
end

-- lacks(n, sku) -> why it is useless to wait for that many units of the SKU | nothing
local function lacks(n, sku)
  local state = call('HMGET', K[1], 'stocked|' .. sku, 'available|' .. sku)
  return short(sku, n, state[1]) or state[2] + 0 < n + 0 and say('only %s of "%s" are left', state[2], sku) or nil
end

-- As long as an expired reservation is left, nobody is told that the goods are sold out.
function kind.reject(w)
  if late then return end
  local what, n, sku = unpack(parts(w.args), 1, 3)
  if what == 'take' then return weigh(w) end
  return lacks(n, sku)
end

-- A reservation does not wait for a message, so its number may be the time instead of the fence's next
-- number.
function kind.try_acquire(w)
  local want, ends = parts(w.args), math.floor(now() / 1000 + w.lease)
  if want[1] == 'lock' then
    if held or lacks(want[2], want[3]) then return false end
    held = {w.owner, ends, number(), w.record}
    call('HSET', K[1], 'lock', cmsgpack.pack(held))
    return true, held[3]
  end
  if weigh(w) or not taken then return false end
  local id, new = want[2], taken
  new[#new + 1] = w.owner
  new[#new + 1] = cmsgpack.pack({ends, now(), w.record, id, want[3], want[4], unpack(want, 6)})
  if id ~= '' then
    new[#new + 1] = 'id|' .. id
    new[#new + 1] = w.owner
  end
  call('HSET', K[1], unpack(new))
  call('ZADD', K[6], string.format('%.0f', ends), w.owner)
  less, taken = true, nil
  return true, now()
end

-- A reservation passes nobody: the waiters here wait for the lock.
function kind.can_barge(w)
  return string.sub(w.args, 1, 5) == 'take|'
end

function kind.release(owner)
  local state = call('HMGET', K[1], owner, 'lock')
  if state[1] then
    finish(owner, cmsgpack.unpack(state[1]), 'available')
    return true
  end
  if not state[2] or cmsgpack.unpack(state[2])[1] ~= owner then return false end
  call('HDEL', K[1], 'lock')
  held = nil
  return true
end

function kind.renew(owner, lease)
  local state, ms = call('HMGET', K[1], owner, 'lock'), now() / 1000
  local entry, lock = state[1] and cmsgpack.unpack(state[1]), state[2] and cmsgpack.unpack(state[2])
  local ends = math.floor(ms + lease)
  -- A write that cannot grow comes first, so that a full Redis accepts the next ones.
  call('HDEL', K[1], '')
  if entry and entry[1] > ms then
    entry[1] = ends
    call('HSET', K[1], owner, cmsgpack.pack(entry))
    call('ZADD', K[6], string.format('%.0f', ends), owner)
    return lease
  elseif lock and lock[1] == owner and lock[2] > ms then
    lock[2] = ends
    call('HSET', K[1], 'lock', cmsgpack.pack(lock))
    return lease
  end
end

-- If a SKU is sold out, rejects the waiters for it among the first in the queue; any others are rejected at
-- their next heartbeat. If some stock is less than before, the first waiters may have to be rejected.
function kind.is_full()
  if gone and less then
    gone = false
    for _, owner in ipairs(call('ZRANGE', K[2], 0, 29)) do
      local w = waiting(owner)
      local why = w and kind.reject(w)
      if why then
        drop(owner)
        tell(w, 'no:' .. why)
      end
    end
  end
  return held and not less
end

function kind.next_expiry()
  return held and math.max(1, held[2] - now() / 1000)
end

-- With args 'lock|...' the holder of the lock, with 'take' the holders of reservations; with 'stock' none: it
-- only finds the SKUs that inspect() returns.
function kind.holders(from)
  local what, list = string.match(F[6] or '', '^%a*'), {}
  local function add(owner, ends, record)
    for _, it in ipairs({owner, math.ceil(ends - now() / 1000), record}) do list[#list + 1] = it end
  end
  if what == 'lock' and held then add(held[1], held[2], held[4]) end
  if what == 'stock' then
    local scan = call('HSCAN', K[1], from or '0', 'MATCH', 'stocked|*', 'COUNT', 50)
    shown = {}
    for i = 1, #scan[2], 2 do shown[#shown + 1] = string.sub(scan[2][i], 9) end
    return list, scan[1] ~= '0' and scan[1]
  end
  if what ~= 'take' then return list end
  local scan = call('ZSCAN', K[6], from or '0', 'COUNT', 20)
  for i = 1, #scan[2], 2 do
    local entry = call('HGET', K[1], scan[2][i])
    entry = entry and cmsgpack.unpack(entry)
    if entry and entry[1] > now() / 1000 then add(scan[2][i], entry[1], entry[3]) end
  end
  return list, scan[1] ~= '0' and scan[1]
end

-- counts(sku) -> {stocked or '', available, reserved, sold}
local function counts(sku)
  local fields = {}
  for i, count in ipairs({'stocked|', 'available|', 'reserved|', 'sold|'}) do fields[i] = count .. sku end
  local n = call('HMGET', K[1], unpack(fields))
  return {n[1] or '', n[2] or 0, n[3] or 0, n[4] or 0}
end

-- With args 'sku|<sku>': its counts; with 'stock' {sku, stocked, available, reserved, sold, ...}, page by
-- page; with 'id|<id>': {1 the order was sold | 0}.
function kind.inspect()
  local what, name = unpack(parts(F[6] or ''), 1, 2)
  if what == 'id' then
    local sold = call('ZSCORE', K[5], F[6])
    return {sold and sold * 1000 > now() and 1 or 0}
  end
  if what == 'sku' then return counts(name) end
  local list = {}
  for _, sku in ipairs(what == 'stock' and shown or {}) do
    list[#list + 1] = sku
    for _, n in ipairs(counts(sku)) do list[#list + 1] = n end
  end
  return list
end

-- update(what, ...) -> {1} done | {0} not done
--   'add_stock' n sku   not done if more than 2^53 - 1 units would ever have been stocked
--   'commit'            sells what the owner F[1] reserved; not done if it no longer has a reservation
--   'delete'            deletes the inventory with its reservations; not done if there is none
function kind.update(what, n, sku)
  -- A write that cannot grow comes first, so that a full Redis accepts the others.
  call('HDEL', K[1], '')
  if what == 'again' then return {call('ZSCORE', K[5], 'done|' .. F[1]) and 1 or 0} end
  local ms, keep = now() / 1000, 60000
  if what == 'add_stock' then
    if (call('HGET', K[1], 'stocked|' .. sku) or 0) + n > 9007199254740991 then return {0} end
    call('HSET', K[1], 'kind', kind.tag)
    call('HINCRBY', K[1], 'stocked|' .. sku, n)
    call('HINCRBY', K[1], 'available|' .. sku, n)
  elseif what == 'commit' then
    local entry = call('HGET', K[1], F[1])
    entry = entry and cmsgpack.unpack(entry)
    if not entry or entry[1] <= ms then return {0} end
    finish(F[1], entry, 'sold')
    if entry[4] ~= '' then
      keep = math.max(keep, entry[5])
      call('ZADD', K[5], string.format('%.0f', ms + entry[5]), 'id|' .. entry[4])
    end
  else
    held = nil
    if call('UNLINK', K[1], K[6]) == 0 then return {0} end
  end
  call('ZADD', K[5], string.format('%.0f', ms + 60000), 'done|' .. F[1])
  call('PEXPIRE', K[5], string.format('%.0f', math.max(keep, call('PTTL', K[5]))))
  return {1}
end
