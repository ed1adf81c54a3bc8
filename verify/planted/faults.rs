//! The faults, and what must notice each.

mod kept;

/// A rule that is broken.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The tests that must fail: the test binary (`lib` for the unit tests), the test, and its message. A
    /// model's message names the property that does not hold.
    pub(super) caught_by: &'static [(&'static str, &'static str, &'static str)],
}

/// Returns all faults.
pub(super) fn all() -> impl Iterator<Item = &'static Fault> {
    FAULTS.iter().chain(kept::FAULTS)
}

const FAULTS: &[Fault] = &[
    // A leave removes the lock's holder, whether or not it is the sender.
    Fault {
        name: "no-owner-check",
        caught_by: &[
            ("lib", "engine::model::worlds::the_lead_is_passed_on", "what is valid here is held in Redis"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            ("lua", "operations::leaving::a_late_leave_does_not_hit_the_next_hold", "failed: reentrant"),
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
            ("lib", "engine::lock_state_tests::ends::parks_are_bounded", "Moment(18446744073709551615)"),
            (
                "locks",
                "safety_rules::a_message_that_got_lost_costs_one_bounded_park",
                "assertion failed: waiter",
            ),
        ],
    },
    // A heartbeat creates the queue position that it does not find. No model would see it: a lock state sends
    // no heartbeat for a queue position that it does not want, and gives a tombstone to an owner whose
    // heartbeat may come late.
    Fault {
        name: "heartbeat-creates",
        caught_by: &[
            ("lib", REPLAY, "replay/compare.rs:"),
            ("lua", "operations::positions::keep_never_creates", "failed: simple"),
        ],
    },
    // A grant is accepted whatever its number.
    Fault {
        name: "any-number",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::threads_ask_on_other_terms",
                "what is valid here is held in Redis",
            ),
            ("lib", CHANCE, "lock_state_tests/chance"),
            (
                "locks",
                "safety_rules::a_message_that_was_overtaken_is_not_believed",
                "it believed that it holds",
            ),
        ],
    },
    // A message is believed for as long as it says.
    Fault {
        name: "message-says-how-long",
        caught_by: &[
            ("lib", WORTH, "assertion `left == right`"),
            (
                "locks",
                "safety_rules::a_forged_message_is_worth_no_more_than_a_first_lease",
                "panicked at tests/locks/safety_rules.rs",
            ),
        ],
    },
    // A client that is asked its own question says that it is a copy of itself.
    Fault {
        name: "copy-is-claimed",
        caught_by: &[(
            "lib",
            "client::tests::nobody_else_can_say_that_a_process_is_a_copy",
            "a stranger ended it",
        )],
    },
    // A grant of the whole lease that only a message reported is not renewed early.
    Fault { name: "message-not-confirmed", caught_by: &[("lib", WORTH, "assertion `left == right`")] },
    // Owner numbers are counted up.
    Fault {
        name: "owner-is-guessed",
        caught_by: &[("locks", "safety_rules::an_owner_id_is_not_guessed", "it believed one of them")],
    },
    // A leave that should give its owner a tombstone does not.
    Fault {
        name: "no-tombstone",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            ("lib", CHANCE, "lock_state_tests/chance"),
            (
                "lua",
                "operations::leaving::a_tombstone_is_written_for_an_owner_that_was_never_inside",
                "failed: simple",
            ),
            (
                "locks",
                "invariants::unknown_is_settled::unknown_is_settled_against_a_late_copy_of_an_ask",
                "its owner has a tombstone",
            ),
        ],
    },
    // A grant counts from the last heartbeat that was sent, not from the last one that was answered busy.
    Fault {
        name: "valid-from-last-sent",
        caught_by: &[
            ("lib", "engine::model::worlds::leases_are_renewed", "what is valid here is held in Redis"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            (
                "lib",
                "engine::lock_state_tests::grants::a_message_counts_from_the_last_ask_that_was_answered_busy",
                "assertion `left == right`",
            ),
        ],
    },
    // A head that gives up stays the head: nobody asks for those behind it.
    Fault {
        name: "lead-kept",
        caught_by: &[
            ("lib", "engine::model::worlds::the_lead_is_passed_on", "no live waiter is stuck"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            ("locks", "safety_rules::the_next_head_inherits_the_position", "it sends heartbeats"),
        ],
    },
    // A request without a reply is repeated under another id, and the first id is forgotten.
    Fault {
        name: "resent-under-new-id",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            ("lib", CHANCE, "lock_state_tests/chance"),
            (
                "locks",
                "invariants::unknown_is_settled::unknown_is_settled_when_an_ask_is_never_answered",
                "the lock is free",
            ),
        ],
    },
    // A hold that has expired by the local clock does not leave Redis.
    Fault {
        name: "lost-not-left",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::replies_are_lost_and_requests_come_late",
                "nothing is left behind",
            ),
            (
                "lib",
                "engine::lock_state_tests::ends::lost_by_the_deadline_leaves_in_the_background",
                "unwrap()",
            ),
            (
                "locks",
                "safety_rules::lost_by_the_deadline_is_given_back_in_redis",
                "it has left, with a tombstone",
            ),
        ],
    },
    // A renewal of a hold that no longer exists creates it again.
    Fault {
        name: "renewal-creates",
        caught_by: &[
            ("lib", "engine::model::worlds::leases_are_renewed", "nobody jumps the queue"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            ("lua", "operations::renewing::renewing_sets_the_lease_and_never_creates", "failed: reentrant"),
            ("locks", "invariants::lost_is_final::renewal_never_creates", "it is lost"),
        ],
    },
    // A waiter is admitted for the lease of the request that admits it, but its own lease is reported to it.
    Fault {
        name: "releasers-lease",
        caught_by: &[
            ("lib", REPLAY, "replay/compare.rs:"),
            (
                "lua",
                "operations::granting::leaving_lets_the_first_in_and_tells_it_in_so_many_words",
                "unwrap()",
            ),
            (
                "locks",
                "invariants::validity_from_before_send::validity_from_before_send_of_a_grant_by_a_holder_with_a_shorter_lease",
                "are believed left",
            ),
        ],
    },
    // A reader asks, and joins, past a writer of its process that has no queue position in Redis yet.
    Fault {
        name: "unknown-is-passed",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::nobody_joins_past_a_writer_of_the_same_process",
                "local hand-off ends",
            ),
            (
                "lib",
                "engine::lock_state_tests::share::nobody_comes_in_past_a_thread_of_its_process_that_redis_does_not_know_of",
                "lock_state_tests/share.rs:",
            ),
            (
                "locks",
                "read_write::order::no_reader_passes_a_writer_of_its_process_that_has_no_position_in_redis_yet",
                "past the writer",
            ),
        ],
    },
    // A waiter that is notified only by a message gets its whole lease, although it may be dead.
    Fault {
        name: "told-for-the-whole-lease",
        caught_by: &[
            ("lib", "engine::model::worlds::heads_of_the_queue_die", "a dead waiter costs no lease"),
            (
                "lua",
                "operations::granting::whom_a_message_tells_is_let_in_for_a_window",
                "assertion `left == right`",
            ),
            (
                "faults",
                "bad_days_process::dead_waiters::a_waiter_that_stands_still_at_its_turn_costs_a_waiter_timeout_and_not_its_lease",
                "behind a waiter that stands still",
            ),
        ],
    },
    // Readers are a single count with a single expiry, instead of a field each: a leave that arrives twice
    // counts twice, and a dead holder stays inside while others renew.
    Fault {
        name: "reader-counter",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::shares_are_asked_for_late",
                "what is valid here is held in Redis",
            ),
            ("lua", "read_write::numbers::a_late_leave_of_a_reader_takes_no_other_out", "the other reads"),
            ("lua", "read_write::numbers::a_reader_that_is_renewed_for_less_lapses_then", "both have lapsed"),
        ],
    },
    // All waiting writers share one mark, instead of a queue position each: the first one that gives up
    // clears it, and a dead holder keeps it.
    Fault {
        name: "one-writer-mark",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::read_write::one_of_two_writers_gives_up",
                "nobody jumps the queue",
            ),
            ("lib", "engine::model::worlds::read_write::a_writer_dies_waiting", "no live waiter is stuck"),
            ("lua", "read_write::numbers::readers_wait_for_each_writer_that_waits", "failed: read-write"),
            (
                "locks",
                "read_write::trouble::a_writer_that_dies_waiting_keeps_readers_out_for_its_window",
                "nobody writes",
            ),
        ],
    },
    // A grant is published, and taken back if nobody at this server was counted as receiving it: a process
    // that listens at the former primary hears it nevertheless. (Against real servers this rarely shows: a
    // reply informs a waiter that it is deaf there, and it subscribes again at once.)
    Fault {
        name: "tell-before-asking",
        caught_by: &[
            ("lib", "engine::model::worlds::the_primary_moves", "what is valid here is held in Redis"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            ("lua", "operations::granting::what_is_taken_back_was_told_to_nobody", "failed: simple"),
        ],
    },
    // An update whose MULTI was refused is reported like one whose EXEC was: as not written.
    Fault {
        name: "refused-multi-is-not-told",
        caught_by: &[(
            "synchronizers",
            "optimistic::refusing::an_update_whose_transaction_is_refused_says_that_it_was_written_without_protection",
            "assertion `left == right`",
        )],
    },
    // A head whose inbox broke is passed by whoever connects again before it.
    Fault {
        name: "order-by-reconnecting",
        caught_by: &[(
            "lua",
            "operations::granting::a_waiter_that_does_not_listen_is_waited_for_until_its_heartbeat_is_overdue",
            "simple",
        )],
    },
    // Only a leave admits the next waiter; a request or a heartbeat does not.
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
                "operations::granting::the_next_heartbeat_of_anybody_finds_a_lapsed_holder",
                "assertion `left == right`",
            ),
            (
                "locks",
                "invariants::validity_from_before_send::validity_from_before_send_of_a_grant_slept_through",
                "the sleeper's lease lapses",
            ),
        ],
    },
    // The signal of a waiter that died before it was admitted is lost with it.
    Fault {
        name: "signal-not-passed-on",
        caught_by: &[
            ("lib", "engine::model::worlds::conditions::a_signalled_waiter_dies", "a signal is never lost"),
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
                "condition::faults::a_waiter_that_stands_still_after_its_signal_passes_it_on",
                "wait_for(&mut guard, LONG)",
            ),
        ],
    },
    // The signal of a waiter that was admitted by it, and never learned of that, is lost with its lease.
    Fault {
        name: "signal-dies-with-its-owner",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::conditions::a_waiter_let_in_by_a_signal_is_dead",
                "no signal dies with its receiver",
            ),
            (
                "locks",
                "condition::faults::a_waiter_that_stands_still_at_its_signal_passes_it_on_when_its_lease_is_over",
                "wait_for(&mut guard, LONG)",
            ),
        ],
    },
    // A wait that timed out says so even if it was signalled before.
    Fault {
        name: "timed-out-is-unsignalled",
        caught_by: &[
            ("lib", "engine::model::worlds::conditions::a_wait_times_out", "a signalled waiter says so"),
            (
                "locks",
                "condition::signals::a_wait_whose_time_is_over_after_its_signal_was_signalled",
                "its signal is nobody else's",
            ),
        ],
    },
    // A wait gives up the lock with one request, and gets its queue position with the next.
    Fault {
        name: "waits-before-enqueued",
        caught_by: &[
            ("lib", "engine::model::worlds::conditions::all_are_signalled_in_turn", "a signal is never lost"),
            (
                "locks",
                "condition::signals::a_wait_takes_its_position_in_the_request_that_gives_the_lock_up",
                "the lock, and the wait",
            ),
        ],
    },
    // What was granted to a head that gave up goes to the next one, whatever that one asks for.
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
                "engine::lock_state_tests::inheriting::a_grant_for_another_request_is_given_back_however_it_is_heard_of",
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
    // A leave that was sent twice and finds its owner outside counts as done by the first copy, whatever
    // happened.
    Fault {
        name: "not-inside-is-released",
        caught_by: &[(
            "locks",
            "unlocking::of_a_hold_that_a_restart_forgot_is_lost_where_another_holds_since",
            "called `Result::unwrap_err()` on an `Ok` value",
        )],
    },
    // The holder from before the failover may still be admitted.
    Fault {
        name: "adopted-without-tombstone",
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
    // A server counts towards a majority as soon as it starts, although it may have forgotten what it
    // granted.
    Fault {
        name: "young-server-counts",
        caught_by: &[(
            "locks",
            "red_lock::young::they_do_not_count_until_they_are_as_old_as_the_lease",
            "called `Result::unwrap_err()` on an `Ok` value",
        )],
    },
    // A server that took the address of another counts at once if it has been up for long.
    Fault {
        name: "replaced-server-counts",
        caught_by: &[(
            "locks",
            "red_lock::young::a_server_at_the_address_of_another_gives_nobody_a_majority",
            "assertion failed: !by_a_server_that_forgot(Forgets::Replaced, false)",
        )],
    },
];

/// Each walk prints its seed.
const REPLAY: &str = "engine::model::replay::the_reentrant_lock_says_what_the_models_redis_says";
/// Each run prints its seed.
const WORTH: &str =
    "engine::lock_state_tests::grants::a_message_is_worth_no_more_than_a_first_lease_and_is_confirmed_soon";
const CHANCE: &str =
    "engine::lock_state_tests::chance::by_chance_there_is_one_owner_and_nobody_is_left_behind";
