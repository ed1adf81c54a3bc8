//! Planted faults: the rules that keep the protocol safe, broken one at a time, to see that a
//! model or a test notices each.
//!
//! They are there only in a build with `--cfg planted`, which nothing but `ci/planted.sh` asks
//! for. In such a build the environment variable `PLANTED` names the one that is in force, so that
//! one build serves them all, and children of a test have their parent's. In every other build
//! `planted!` is `false` and `lua` changes nothing.
//!
//! A fault in Rust is a `planted!("its-name")` at the place of its rule. A fault in Lua is a text
//! that is replaced in a part of a script (`IN_LUA`); where the models have a Redis of their own,
//! the same fault is a `planted!` there. How to add one is in `CONTRIBUTING.md`.

/// Whether the fault of this name is in force.
#[cfg(not(planted))]
macro_rules! planted {
    ($fault:literal) => {
        false
    };
}

/// Whether the fault of this name is in force.
#[cfg(planted)]
macro_rules! planted {
    ($fault:literal) => {
        crate::planted::in_force() == $fault
    };
}

/// A part of a script, with the fault in force where it is one of that part.
#[cfg(not(planted))]
pub(crate) const fn lua(part: &str) -> &str {
    part
}

/// A part of a script, with the fault in force where it is one of that part.
#[cfg(planted)]
pub(crate) fn lua(part: &str) -> &str {
    let mut text = part.to_owned();
    for at in IN_LUA.iter().filter(|at| at.fault == in_force() && at.part == part) {
        assert_eq!(text.matches(at.text).count(), 1, "{}: not exactly once: {}", at.fault, at.text);
        text = text.replace(at.text, at.becomes);
    }
    if text == part { part } else { Box::leak(text.into_boxed_str()) }
}

/// The name of the fault in force; empty when there is none.
#[cfg(planted)]
pub(crate) fn in_force() -> &'static str {
    static NAME: std::sync::OnceLock<&'static str> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let name = std::env::var("PLANTED").unwrap_or_default();
        let known = FAULTS.iter().map(|fault| fault.name).find(|known| *known == name);
        known.unwrap_or_else(|| if name.is_empty() { "" } else { panic!("PLANTED={name}: no such fault") })
    })
}

/// One rule, broken.
#[cfg(planted)]
struct Fault {
    name: &'static str,
    /// Who must fail: the test binary (`lib` for the unit tests), the test, and what it must say.
    /// A model's test says which property does not hold.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the list below"))]
    caught_by: &'static [(&'static str, &'static str, &'static str)],
}

#[cfg(planted)]
const FAULTS: &[Fault] = &[
    // A leave takes out whoever holds the lock, be it its sender or not.
    Fault {
        name: "no-owner-check",
        caught_by: &[
            ("lib", "engine::model::worlds::the_lead_is_passed_on", "what is valid here is held in Redis"),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            ("lua", "operations::a_late_leave_does_not_hit_the_next_hold", "failed: reentrant"),
            (
                "locks",
                "invariants::unknown_is_settled::unknown_is_settled_for_an_unlock_without_an_answer",
                "a late release hit the next holder",
            ),
        ],
    },
    // A thread that waits in Redis sleeps until a message wakes it.
    Fault {
        name: "no-timer",
        caught_by: &[
            ("lib", "engine::model::worlds::a_process_dies", "no live waiter is stuck"),
            ("lib", "engine::gate_tests::parks_are_bounded", "Moment(18446744073709551615)"),
            (
                "locks",
                "safety_rules::a_message_that_got_lost_costs_one_bounded_park",
                "assertion failed: waiter",
            ),
        ],
    },
    // A beat puts the place that it does not find. No model would see it: a gate sends no beat for
    // a place that it does not want, and bars the owner whose beat may come late.
    Fault {
        name: "beat-creates",
        caught_by: &[
            ("lib", REPLAY, "replay/compare.rs:"),
            ("lua", "operations::keep_never_creates", "failed: simple"),
        ],
    },
    // A grant is believed whatever its number.
    Fault {
        name: "any-number",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::threads_ask_on_other_terms",
                "what is valid here is held in Redis",
            ),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            (
                "locks",
                "safety_rules::a_message_that_was_overtaken_is_not_believed",
                "it believed that it holds",
            ),
        ],
    },
    // A leave that is to bar its owner does not.
    Fault {
        name: "no-tombstone",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            ("lua", "operations::a_tombstone_is_written_for_who_was_never_inside", "failed: simple"),
            (
                "locks",
                "invariants::unknown_is_settled::unknown_is_settled_against_a_late_copy_of_an_ask",
                "its owner is barred",
            ),
        ],
    },
    // A grant counts from the last beat that was sent, and not from the last answered busy.
    Fault {
        name: "valid-from-last-sent",
        caught_by: &[
            ("lib", "engine::model::worlds::leases_are_renewed", "what is valid here is held in Redis"),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            (
                "lib",
                "engine::gate_tests::a_message_counts_from_the_last_ask_that_was_answered_busy",
                "assertion `left == right`",
            ),
        ],
    },
    // A head that gives up stays the head: nobody behind it is asked for.
    Fault {
        name: "lead-kept",
        caught_by: &[
            ("lib", "engine::model::worlds::the_lead_is_passed_on", "no live waiter is stuck"),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            ("locks", "safety_rules::the_next_head_inherits_the_place", "it beats"),
        ],
    },
    // What had no answer is asked again under another id, and the first is forgotten.
    Fault {
        name: "resent-under-new-id",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            (
                "locks",
                "invariants::unknown_is_settled::unknown_is_settled_when_an_ask_is_never_answered",
                "the lock is free",
            ),
        ],
    },
    // A hold that is over by the local clock does not leave Redis.
    Fault {
        name: "lost-not-left",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            ("lib", "engine::gate_tests::lost_by_the_deadline_leaves_in_the_background", "unwrap()"),
            (
                "locks",
                "safety_rules::lost_by_the_deadline_is_given_back_in_redis",
                "it has left, with a tombstone",
            ),
        ],
    },
    // A renewal of a hold that is no more makes it anew.
    Fault {
        name: "renewal-creates",
        caught_by: &[
            ("lib", "engine::model::worlds::leases_are_renewed", "nobody jumps the queue"),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            ("lua", "operations::renewing_sets_the_lease_and_never_creates", "failed: reentrant"),
            ("locks", "invariants::lost_is_final::renewal_never_creates", "it is lost"),
        ],
    },
    // A waiter is let in for the lease of whoever let it in, and told its own.
    Fault {
        name: "releasers-lease",
        caught_by: &[
            ("lib", REPLAY, "replay/compare.rs:"),
            ("lua", "operations::leaving_lets_the_first_in_and_tells_it_in_so_many_words", "unwrap()"),
            (
                "locks",
                "invariants::validity_from_before_send::validity_from_before_send_of_a_grant_by_who_has_a_shorter_lease",
                "are believed left",
            ),
        ],
    },
    // Who reads asks, and joins, past a writer of its process that has no place in Redis yet.
    Fault {
        name: "unknown-is-passed",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::nobody_joins_past_a_writer_of_the_same_process",
                "slices end",
            ),
            (
                "lib",
                "engine::gate_tests::share::nobody_comes_in_past_a_thread_of_its_process_that_redis_does_not_know_of",
                "gate_tests/share.rs:",
            ),
            (
                "locks",
                "read_write::order::no_reader_passes_a_writer_of_its_process_that_has_no_place_in_redis_yet",
                "past the writer",
            ),
        ],
    },
    // Whom only a message tells has its whole lease, though it may be dead.
    Fault {
        name: "told-for-the-whole-lease",
        caught_by: &[
            ("lib", "engine::model::worlds::heads_of_the_queue_die", "a dead waiter costs no lease"),
            ("lua", "operations::whom_a_message_tells_is_let_in_for_a_window", "assertion `left == right`"),
            (
                "faults",
                "bad_days_process::dead_waiters::a_waiter_that_stands_still_at_its_turn_costs_a_waiter_timeout_and_not_its_lease",
                "behind a waiter that stands still",
            ),
        ],
    },
    // Readers are one count with one life, and not a field for each: a leave that comes twice counts
    // twice, and who died stays in while others renew.
    Fault {
        name: "reader-counter",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::shares_are_asked_for_late",
                "what is valid here is held in Redis",
            ),
            ("lua", "read_write::a_late_leave_of_a_reader_takes_no_other_out", "the other reads"),
            ("lua", "read_write::a_reader_that_is_renewed_for_less_lapses_then", "both have lapsed"),
        ],
    },
    // One mark for all writers that wait, and not a place for each: the first that gives up clears it,
    // and who died keeps it.
    Fault {
        name: "one-writer-mark",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::one_of_two_writers_gives_up",
                "nobody jumps the queue",
            ),
            ("lib", "engine::model::worlds::read_write::a_writer_dies_waiting", "no live waiter is stuck"),
            ("lua", "read_write::readers_wait_for_each_writer_that_waits", "failed: read-write"),
            (
                "locks",
                "read_write::trouble::a_writer_that_dies_waiting_keeps_readers_out_for_its_window",
                "nobody writes",
            ),
        ],
    },
    // A grant is told, and taken back where nobody at this server was counted to hear it: whoever listens at the
    // primary of before hears it all the same.
    Fault {
        name: "tell-before-asking",
        caught_by: &[
            ("lib", "engine::model::worlds::the_primary_moves", "what is valid here is held in Redis"),
            ("lib", CHANCE, "gate_tests/chance.rs:"),
            ("lua", "operations::what_is_taken_back_was_told_to_nobody", "failed: simple"),
            (
                "locks",
                "replicas::planned::nor_where_only_those_that_listen_stay_connected",
                "assertion `left == right` failed: Contenders",
            ),
        ],
    },
    // Only a leave lets the next one in; an ask and a beat do not.
    Fault {
        name: "only-leave-admits",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "no live waiter is stuck",
            ),
            (
                "lua",
                "operations::the_next_beat_of_anybody_finds_a_lapsed_holder",
                "assertion `left == right`",
            ),
            (
                "locks",
                "invariants::validity_from_before_send::validity_from_before_send_of_a_grant_slept_through",
                "the sleeper's lease lapses",
            ),
        ],
    },
    // The signal of one that died before it was let in ends with it.
    Fault {
        name: "signal-not-passed-on",
        caught_by: &[
            ("lib", "engine::model::condition::worlds::who_was_signalled_dies", "a signal is never lost"),
            (
                "locks",
                "condition::signals::the_signal_of_a_client_that_closes_is_the_next_ones",
                "0 wait for a condition",
            ),
            (
                "lua",
                "condition::a_signal_goes_on_where_its_owner_is_silent_unheard_or_leaves",
                "assertion `left == right` failed: silent",
            ),
            (
                "locks",
                "condition::faults::who_stands_still_after_its_signal_passes_it_on",
                "wait_for(&mut guard, LONG)",
            ),
        ],
    },
    // The signal of one that was let in by it, and never heard of that, ends with its lease.
    Fault {
        name: "signal-dies-with-its-owner",
        caught_by: &[
            (
                "lib",
                "engine::model::condition::worlds::who_was_let_in_by_a_signal_is_dead",
                "no signal dies with who had it",
            ),
            (
                "locks",
                "condition::faults::who_stands_still_at_its_signal_passes_it_on_when_its_lease_is_over",
                "wait_for(&mut guard, LONG)",
            ),
        ],
    },
    // A wait whose time is over says so, even if it was signalled before.
    Fault {
        name: "timed-out-is-unsignalled",
        caught_by: &[
            ("lib", "engine::model::condition::worlds::a_wait_times_out", "who was signalled says so"),
            (
                "locks",
                "condition::signals::a_wait_whose_time_is_over_after_its_signal_was_signalled",
                "its signal is nobody else's",
            ),
        ],
    },
    // A wait gives the lock up with one request, and takes its place with the next.
    Fault {
        name: "waits-before-enqueued",
        caught_by: &[
            ("lib", "engine::model::condition::worlds::all_are_signalled_in_turn", "a signal is never lost"),
            (
                "locks",
                "condition::signals::a_wait_takes_its_place_in_the_request_that_gives_the_lock_up",
                "the lock, and the wait",
            ),
        ],
    },
    // What was granted to a head that gave up is the next one's, whatever that asks for.
    Fault {
        name: "grant-of-another-request",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::permits::threads_ask_for_other_numbers",
                "never more permits are out than there are",
            ),
            ("lib", "engine::model::worlds::read_write::a_writer_gives_up_to_read_beside", "one owner"),
            (
                "lib",
                "engine::gate_tests::inheriting::a_grant_for_another_request_is_given_back_however_it_is_heard_of",
                "it must leave",
            ),
            ("locks", "grants::of_one_permit_is_not_that_of_three", "assertion `left == right`"),
            (
                "locks",
                "grants::of_a_writer_that_reads_is_not_that_of_a_reader",
                "it reads while another thread writes",
            ),
        ],
    },
    // A leave that was sent twice and finds its owner outside was done by the first copy, whatever happened.
    Fault {
        name: "not-inside-is-released",
        caught_by: &[(
            "locks",
            "unlocking::of_a_hold_that_a_restart_forgot_is_lost_where_another_holds_since",
            "called `Result::unwrap_err()` on an `Ok` value",
        )],
    },
    // Who had a hold before it went over may still be let in.
    Fault {
        name: "adopted-not-barred",
        caught_by: &[
            (
                "locks",
                "receipts::a_late_copy_of_the_ask_for_what_went_over_takes_nothing",
                "the lock is free",
            ),
            (
                "lua",
                "semaphore::adopting_keeps_the_number_and_is_done_once_of_a_reentrant_lock",
                "assertion `left == right`",
            ),
        ],
    },
    // A server counts in a majority from its start on, though it may have forgotten what it granted.
    Fault {
        name: "young-server-counts",
        caught_by: &[(
            "locks",
            "red_lock::young::they_do_not_count_until_they_are_as_old_as_the_lease",
            "called `Result::unwrap_err()` on an `Ok` value",
        )],
    },
];

/// Each walk prints its seed.
#[cfg(planted)]
const REPLAY: &str = "engine::model::replay::the_reentrant_lock_says_what_the_models_redis_says";
/// Each run prints its seed.
#[cfg(planted)]
const CHANCE: &str = "engine::gate_tests::chance::by_chance_there_is_one_owner_and_nobody_is_left_behind";

/// A fault's place in Lua: in this part, which holds `text` exactly once.
#[cfg(any(test, planted))]
struct InLua {
    fault: &'static str,
    part: &'static str,
    text: &'static str,
    becomes: &'static str,
}

#[cfg(any(test, planted))]
const ACQUIRE: &str = include_str!("../lua/lib/acquire.lua");
#[cfg(any(test, planted))]
const QUEUE: &str = include_str!("../lua/lib/queue.lua");
#[cfg(any(test, planted))]
const LEAVE: &str = include_str!("../lua/lib/leave.lua");
#[cfg(any(test, planted))]
const AWAIT: &str = include_str!("../lua/lib/await.lua");
#[cfg(any(test, planted))]
const ADOPT: &str = include_str!("../lua/lib/adopt.lua");
#[cfg(any(test, planted))]
const REENTRANT: &str = include_str!("../lua/reentrant.lua");

#[cfg(any(test, planted))]
const READ_WRITE: &str = include_str!("../lua/read_write.lua");

/// As short as can be and still exactly once: the Lua around them changes.
#[cfg(any(test, planted))]
const IN_LUA: &[InLua] = &[
    InLua {
        fault: "no-owner-check",
        part: REENTRANT,
        text: "function kind.release(owner)",
        becomes: "function kind.release() local owner = call('HGET', K[1], 'owner')",
    },
    InLua { fault: "beat-creates", part: ACQUIRE, text: "if F[5] == 'keep' then", becomes: "if false then" },
    InLua { fault: "no-tombstone", part: LEAVE, text: "if F[5] == '1' then", becomes: "if false then" },
    InLua {
        fault: "renewal-creates",
        part: REENTRANT,
        text: "function kind.renew(owner, lease)",
        becomes: "function kind.renew(owner, lease)
            if call('EXISTS', K[1]) == 0 then
                call('HSET', K[1], 'kind', kind.tag, 'owner', owner, 'number', number(), 'record', '')
            end",
    },
    InLua {
        fault: "releasers-lease",
        part: QUEUE,
        text: "local w = waiting(head)",
        becomes: "local w = waiting(head)
            local own = w and w.lease
            if w then w.lease = F[2] end",
    },
    InLua {
        fault: "releasers-lease",
        part: QUEUE,
        text: "tell(w, why and",
        becomes: "w.lease = own tell(w, why and",
    },
    InLua {
        fault: "tell-before-asking",
        part: QUEUE,
        text: "tell(w, why and 'no:' .. why or 'in', n, value)",
        becomes: "do end",
    },
    InLua {
        fault: "tell-before-asking",
        part: QUEUE,
        text: "if not there then",
        becomes: "tell(w, why and 'no:' .. why or 'in', n, value)
            if not there then",
    },
    InLua {
        fault: "signal-dies-with-its-owner",
        part: QUEUE,
        text: "if not left and ms <= 50 then",
        becomes: "if false then",
    },
    InLua {
        fault: "told-for-the-whole-lease",
        part: QUEUE,
        text: "if head ~= me and not kind.whole then",
        becomes: "if false then",
    },
    InLua {
        fault: "reader-counter",
        part: READ_WRITE,
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
        part: READ_WRITE,
        text: "cmsgpack.unpack(some[i + 1])[1]",
        becomes: "ms + call('PTTL', K[1])",
    },
    InLua {
        fault: "one-writer-mark",
        part: LEAVE,
        text: "  drop(F[1])",
        becomes: "  local writes = waiting(F[1])
            for _, other in ipairs(writes and writes.args == 'write' and call('ZRANGE', K[2], 0, -1) or {}) do
                if waiting(other).args == 'write' then call('ZINCRBY', K[2], fmt('%.0f', 2 * CLASS), other) end
            end
            drop(F[1])",
    },
    InLua {
        fault: "one-writer-mark",
        part: QUEUE,
        text: "if not w or dead(w) then",
        becomes: "if w and silent(w) and w.args == 'write' then return nil, w end
            if not w then",
    },
    InLua {
        fault: "only-leave-admits",
        part: QUEUE,
        text: "local function admit_waiters(me, first)",
        becomes: "local function admit_waiters(me, first)
            if F[5] == 'try' or F[5] == 'wait' or F[5] == 'keep' then
                local head = call('ZRANGE', K[2], 0, 0)[1]
                return nil, head and waiting(head)
            end",
    },
    InLua {
        fault: "signal-not-passed-on",
        part: QUEUE,
        text: "if not score then return end",
        becomes: "do return end",
    },
    InLua {
        fault: "signal-not-passed-on",
        part: QUEUE,
        text: "w.condition and call('ZSCORE', K[2], head)",
        becomes: "false",
    },
    InLua {
        fault: "timed-out-is-unsignalled",
        part: AWAIT,
        text: "if position and call('ZSCORE', K[2], w.owner) then",
        becomes: "if position and call('ZSCORE', K[2], w.owner) then
            if F[5] == 'back' then came_back, position.condition = true, false end",
    },
    InLua { fault: "adopted-not-barred", part: ADOPT, text: "if n then tombstone(F[5]) end", becomes: "" },
    InLua {
        fault: "waits-before-enqueued",
        part: AWAIT,
        text: "if not kind.load(F[8]) then return {-1, 'not-inside'} end",
        becomes: "if kind.load(F[8]) then
                kind.release(F[8])
                kind.load('')
                admit_waiters()
                return {-1, 'gone'}
            end",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_in_lua_stands_there_exactly_once() {
        for at in IN_LUA {
            assert_eq!(at.part.matches(at.text).count(), 1, "{}: {}", at.fault, at.text);
            assert_ne!(at.text, at.becomes, "{}", at.fault);
        }
    }

    /// For `ci/planted.sh`.
    #[cfg(planted)]
    #[test]
    fn list() {
        for fault in FAULTS {
            assert!(!fault.caught_by.is_empty(), "{}: nobody is to catch it", fault.name);
            for (binary, test, says) in fault.caught_by {
                println!("@{}|{binary}|{test}|{says}", fault.name);
            }
        }
    }
}
