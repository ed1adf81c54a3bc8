-- all: one operation on several locks of one kind, in one step.
--
-- KEYS the keys of the locks, one lock's after the other's
-- ARGV 1 'acquire' | 'leave'   2... for each lock: how many arguments follow, and these arguments, as the
--        operation takes them
-- ->  a list: for each lock the operation's reply, or its error.
--     acquire is all or nothing: the list ends with the first lock that was not granted, and those
--     before it are given back, except what was held before: the hold that a 'share' is about, and what
--     a late copy asks for again, which may be another thread's hold by now.

-- Each of the two is a whole operation, with keys, arguments and locals of its own.
local function acquire(KEYS, ARGV)
--@ acquire
end

local function leave(KEYS, ARGV)
--@ leave
end

-- located(e) -> the error e as servers before 7.0 word one that no script caught: behind the line that raised it, which
-- tells which key it is about.
local function located(e)
  -- This function's caller is the command of Redis that failed, or error(); the line is that of the caller of these.
  local _, at = pcall(error, '', 4)
  at = string.match(at, '^user_script:%d+: $')
  return 'ERR Error running script (call to all): ' .. (at and '@' .. at or '') .. (type(e) == 'table' and e.err or e)
end

local EACH = 6 -- keys
local operation = ARGV[1] == 'leave' and leave or acquire
local answers, taken, at = {}, {}, 2
for i = 1, #KEYS / EACH do
  local keys = {unpack(KEYS, (i - 1) * EACH + 1, i * EACH)}
  local args = {unpack(ARGV, at + 1, at + ARGV[at])}
  at = at + 1 + ARGV[at]
  -- An error here must not keep what was acquired before it, nor hold back what must leave after it.
  local ok, answer, before = xpcall(function() return operation(keys, args) end, located)
  if not ok then answer = {err = answer} end
  answers[i] = answer
  if operation == acquire then
    if type(answer) == 'table' and answer[1] ~= 1 then
      -- By leave, so that the queues there are served as usual. If a leave fails, the whole script does: what
      -- is held is then unknown, and the caller makes all of it leave.
      for t = #taken, 1, -1 do leave(unpack(taken[t])) end
      break
    end
    if not before then taken[#taken + 1] = {keys, {unpack(args, 1, 4)}} end
  end
end
return answers
