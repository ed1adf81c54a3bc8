//! The faults, and what must notice each.

mod conditions;
mod kept;
mod messages;
mod modes;

/// A rule that is broken.
pub(super) struct Fault {
    pub(super) name: &'static str,
    /// The tests that must fail: the test binary (`lib` for the unit tests), the test, and its message. A
    /// model's message names the property that does not hold.
    pub(super) caught_by: &'static [(&'static str, &'static str, &'static str)],
}

/// Returns all faults.
pub(super) fn all() -> impl Iterator<Item = &'static Fault> {
    [FAULTS, messages::FAULTS, modes::FAULTS, conditions::FAULTS, kept::FAULTS].into_iter().flatten()
}

const FAULTS: &[Fault] = &[
    // A leave removes the lock's holder, whether or not it is the sender.
    Fault {
        name: "no-owner-check",
        caught_by: &[
            ("lib", "engine::model::worlds::the_lead_is_passed_on", "what is valid here is held in Redis"),
            ("lib", CHANCE, "lock_state_tests/chance"),
            ("lua", "operations::leaving::a_late_leave_does_not_hit_the_next_hold", "failed: simple"),
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
    // Waiters come in by arrival alone. (In both places: no model would see it, as the order is Redis's.)
    Fault {
        name: "priority-ignored",
        caught_by: &[
            (
                "lua",
                "operations::positions::the_more_urgent_come_first_and_each_step_counts_as_half_a_minute",
                "assertion `left == right` failed",
            ),
            ("locks", "manners::the_more_urgent_process_comes_first", "assertion `left == right` failed"),
        ],
    },
    // How many wait is not counted in the step that gives out a place.
    Fault {
        name: "limit-outside-the-script",
        caught_by: &[
            ("lib", "engine::model::worlds::few_may_wait", "no more wait than may"),
            (
                "lua",
                "operations::positions::a_waiter_too_many_gets_no_place",
                "assertion `left == right` failed",
            ),
        ],
    },
    // A deadlock is believed by what its threads published before it was seen first.
    Fault {
        name: "deadlock-by-hearsay",
        caught_by: &[
            ("lib", "deadlock::tests::each_circle_that_lasts_has_one_victim", "a victim without a circle"),
            (
                "lib",
                "deadlock::tests::a_circle_is_believed_once_all_have_published_it_again",
                "the other one may have gone on since",
            ),
        ],
    },
    // A deadlock is believed although its threads were read so slowly that one may have gone on meanwhile.
    Fault {
        name: "deadlock-of-two-times",
        caught_by: &[(
            "lib",
            "deadlock::tests::a_circle_is_believed_once_all_have_published_it_again",
            "one may have gone on before the other one waited",
        )],
    },
    // What a dropped guard did not wait for is taken for the reply to the next request on its connection.
    Fault {
        name: "late-reply-is-anothers",
        caught_by: &[(
            "locks",
            "dropping::another_lock_of_the_same_threads_goes_behind_it_too",
            "assertion `left == right` failed",
        )],
    },
    // A client that closes does not read what is unread, and sends its own releases behind it.
    Fault {
        name: "drop-forgotten-at-close",
        caught_by: &[("locks", "dropping::a_client_that_closes_waits_for_it", "close() sent another")],
    },
    // The head asks while the release of a dropped guard is on its way on another connection.
    Fault {
        name: "release-is-passed",
        caught_by: &[(
            "lib",
            "engine::model::worlds::guards_are_dropped",
            "no process passes its own release",
        )],
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
    // A revoked hold stays in Redis although no thread works under it any more.
    Fault {
        name: "revoked-is-not-left",
        caught_by: &[
            ("lib", "engine::model::worlds::holds_are_revoked", "nothing is left behind"),
            ("lib", "engine::model::worlds::kept::it_is_revoked_while_it_is_kept", "nothing is left behind"),
            (
                "locks",
                "forced::the_end_of_a_revoked_hold_frees_the_lock",
                "panicked at tests/locks/forced.rs",
            ),
            ("locks", "forced::a_kept_lock_that_is_revoked_is_free", "panicked at tests/locks/forced.rs"),
        ],
    },
    // A renewal of a hold that no longer exists creates it again.
    Fault {
        name: "renewal-creates",
        caught_by: &[
            ("lib", "engine::model::worlds::leases_are_renewed", "nobody jumps the queue"),
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
    // An update whose MULTI was refused is reported like one whose EXEC was: as not written.
    Fault {
        name: "refused-multi-is-not-told",
        caught_by: &[(
            "synchronizers",
            "optimistic::refusing::an_update_whose_transaction_is_refused_says_that_it_was_written_without_protection",
            "assertion `left == right`",
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
        caught_by: &[
            (
                "lib",
                "engine::redis::server_info::tests::another_server_serves_since_it_was_found",
                "assertion `left == right`",
            ),
            (
                "locks",
                "red_lock::young::a_server_at_the_address_of_another_counts_a_lease_later",
                "after they came",
            ),
        ],
    },
];

/// Each walk prints its seed.
const REPLAY: &str = "engine::model::replay::the_reentrant_lock_says_what_the_models_redis_says";
/// The releases that are played by the straight path and by the loop.
const STRAIGHT: &str = "operations::straight::a_hand_over_ends_as_the_loop_ends_it";
/// Each run prints its seed.
const CHANCE: &str =
    "engine::lock_state_tests::chance::by_chance_there_is_one_owner_and_nobody_is_left_behind";
