//! The faults in Lua: a text that its file contains exactly once, and what replaces it.

/// A place in Lua.
pub(super) struct InLua {
    pub(super) fault: &'static str,
    /// Relative to `lua/`, or a rule of another crate.
    pub(super) file: &'static str,
    /// As short as possible while it occurs exactly once, since the Lua around it changes.
    pub(super) text: &'static str,
    /// In a kind's own file, it must begin with `text`, so that the functions stay where they are. A part
    /// that the script lacks without the fault must be missing with it, too.
    pub(super) becomes: &'static str,
}

pub(super) const IN_LUA: &[InLua] = &[
    InLua {
        fault: "no-owner-check",
        file: "reentrant.lua",
        text: "function kind.release(owner)",
        becomes: "function kind.release(owner) owner = call('HGET', K[1], 'owner')",
    },
    InLua {
        fault: "no-owner-check",
        file: "lib/leave.lua",
        text: "== F[1] and call('DEL', K[1]) or 0",
        becomes: "and call('DEL', K[1]) or 0",
    },
    InLua { fault: "heartbeat-creates", file: "lib/acquire.lua", text: "if F[5] == 'keep' then", becomes: "if false then" },
    InLua { fault: "no-tombstone", file: "lib/leave.lua", text: "if F[5] == '1' then", becomes: "if false then" },
    InLua {
        fault: "renewal-creates",
        file: "reentrant.lua",
        text: "function kind.renew(owner, lease)",
        becomes: "function kind.renew(owner, lease)
            if call('EXISTS', K[1]) == 0 then
                local t = call('TIME')
                local n = string.format('%.0f', (t[1] - 1577836800) * 1000000 + t[2])
                call('HSET', K[1], 'kind', 'reentrant lock', 'owner', owner, 'number', n, 'record', '')
            end",
    },
    InLua {
        fault: "releasers-lease",
        file: "lib/queue.lua",
        text: "return kind.try_acquire(w)",
        becomes: "local own = w.lease
            w.lease = F[2]
            local ok, n, value = kind.try_acquire(w)
            w.lease = own
            return ok, n, value",
    },
    InLua {
        fault: "tell-before-asking",
        file: "lib/queue.lua",
        text: "tell(w, why and 'no:' .. why or 'in', n, value)",
        becomes: "do end",
    },
    InLua {
        fault: "tell-before-asking",
        file: "lib/queue.lua",
        text: "if head == me then",
        becomes: "if head ~= me then tell(w, why and 'no:' .. why or 'in', n, value) end
            if head == me then",
    },
    InLua {
        fault: "signal-dies-with-its-owner",
        file: "lib/queue.lua",
        text: "if not left and ms <= 50 then",
        becomes: "if false then",
    },
    InLua {
        fault: "told-for-the-whole-lease",
        file: "lib/queue.lua",
        text: "if w.owner ~= me and not kind.whole then",
        becomes: "if false then",
    },
    InLua {
        fault: "reader-counter",
        file: "read_write.lua",
        text: "function kind.release(owner)",
        becomes: "function kind.release(owner)
            if call('HEXISTS', K[1], owner) == 0 and not call('ZSCORE', K[2], owner) then
                for _, other in ipairs(call('HKEYS', K[1])) do
                    if string.find(other, ':', 1, true) and other ~= call('HGET', K[1], 'writer') then
                        return kind.release(other)
                    end
                end
            end",
    },
    InLua {
        fault: "reader-counter",
        file: "read_write.lua",
        text: "cmsgpack.unpack(some[i + 1])[1]",
        becomes: "ms + call('PTTL', K[1])",
    },
    InLua {
        fault: "one-writer-mark",
        file: "lib/leave.lua",
        text: "  drop(F[1])",
        becomes: "  local writes = waiting(F[1])
            for _, other in ipairs(writes and writes.args == 'write' and call('ZRANGE', K[2], 0, -1) or {}) do
                if waiting(other).args == 'write' then call('ZINCRBY', K[2], fmt('%.0f', 2 * CLASS), other) end
            end
            drop(F[1])",
    },
    InLua {
        fault: "one-writer-mark",
        file: "lib/queue.lua",
        text: "if not w or dead(w) then",
        becomes: "if w and silent(w) and w.args == 'write' then return nil, w end
            if not w then",
    },
    InLua {
        fault: "only-leave-admits",
        file: "lib/queue.lua",
        text: "local function admit_waiters(me, first)",
        becomes: "local function admit_waiters(me, first)
            if F[5] == 'try' or F[5] == 'wait' or F[5] == 'keep' then
                local head = call('ZRANGE', K[2], 0, 0)[1]
                return nil, head and waiting(head)
            end",
    },
    InLua {
        fault: "signal-not-passed-on",
        file: "lib/queue.lua",
        text: "if not score then return end",
        becomes: "do return end",
    },
    InLua {
        fault: "signal-not-passed-on",
        file: "lib/queue.lua",
        text: "w.condition and call('ZSCORE', K[2], head)",
        becomes: "false",
    },
    InLua {
        fault: "timed-out-is-unsignalled",
        file: "lib/await.lua",
        text: "if position and call('ZSCORE', K[2], w.owner) then",
        becomes: "if position and call('ZSCORE', K[2], w.owner) then
            if F[5] == 'back' then came_back, position.condition = true, false end",
    },
    InLua { fault: "adopted-without-tombstone", file: "lib/adopt.lua", text: "if n then tombstone(F[5]) end", becomes: "" },
    InLua { fault: "waits-before-enqueued", file: "lib/await.lua", text: "if F[5] == 'wait' and", becomes: "if false and" },
    InLua {
        fault: "waits-before-enqueued",
        file: "lib/await.lua",
        text: "if not is_inside(from) then return {-1, 'not-inside'} end",
        becomes: "if kind.load(from) then
                kind.release(from)
                kind.load('')
                admit_waiters()
                return {-1, 'gone'}
            end",
    },
    InLua {
        fault: "not-wanted-behind-a-grant",
        file: "lib/queue.lua",
        text: "if keeps(owner) and call('EXISTS', K[2]) == 1 then wanted(owner) end",
        becomes: "do end",
    },
    InLua {
        fault: "not-wanted-by-a-heartbeat",
        file: "lib/join.lua",
        text: "if kind.on_busy then kind.on_busy(w) end",
        becomes: "if not new then return busy(w, arrival, ahead, deaf(w)) end",
    },
    InLua {
        fault: "order-by-reconnecting",
        file: "lib/queue.lua",
        text: "now() - w.heartbeat > most * 1000 or",
        becomes: "true or",
    },
    InLua {
        fault: "releasers-lease",
        file: "lib/leave.lua",
        text: "local owner, lease, record = first,",
        becomes: "local own = p[1] + 0 < most + 0 and p[1] or most
            local owner, lease, record = first, F[2], p[5] --",
    },
    InLua { fault: "releasers-lease", file: "lib/leave.lua", text: "' ' .. lease)", becomes: "' ' .. own)" },
    InLua {
        fault: "told-for-the-whole-lease",
        file: "lib/leave.lua",
        text: "p[3] + 0 < 1000 and '1000' or p[3]",
        becomes: "p[1]",
    },
    InLua {
        fault: "priority-ignored",
        file: "lib/queue.lua",
        text: "return arrival - (w.priority or 0) * STEP",
        becomes: "return arrival",
    },
    InLua {
        fault: "limit-outside-the-script",
        file: "lib/join.lua",
        text: "if n and new and w.arrival == ''",
        becomes: "if false",
    },
    InLua { fault: "handed-to-the-deaf", file: "lib/leave.lua", text: "(listening[2] or 0) > 0", becomes: "true" },
    InLua { fault: "handed-to-the-silent", file: "lib/leave.lua", text: "us - p[2] <= p[3] * 1000", becomes: "true" },
    InLua {
        fault: "handed-past-a-signal",
        file: "lib/leave.lua",
        text: "p[6] and (call(",
        becomes: "false and (call(",
    },
    InLua {
        fault: "handed-to-a-keeper",
        file: "lib/leave.lua",
        text: "string.byte(first, -1) ~= 126",
        becomes: "true",
    },
    InLua {
        fault: "members-disagree",
        file: "partitions/src/members.lua",
        text: "if its and agreed and its ~= agreed then",
        becomes: "if false then",
    },
    InLua { fault: "dead-member-stays", file: "partitions/src/members.lua", text: "if gone[1] then", becomes: "if false then" },
    InLua {
        fault: "membership-is-revived",
        file: "partitions/src/members.lua",
        text: "function kind.renew(owner, lease)",
        becomes: "function kind.renew(owner, lease)
            if not kind.load(owner) then return lease end",
    },
];
