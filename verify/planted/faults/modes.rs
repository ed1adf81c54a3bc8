//! Faults of locks with several modes, and of requests that differ.

use super::Fault;

pub(super) const FAULTS: &[Fault] = &[
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
    // Members may share different numbers of partitions.
    Fault {
        name: "members-disagree",
        caught_by: &[("partitions", "what_cannot_be_is_refused", "on an `Ok` value")],
    },
    // A member whose lease has expired stays on the list.
    Fault {
        name: "dead-member-stays",
        caught_by: &[(
            "members",
            "a_member_that_was_killed_or_stopped_is_gone_after_its_lease_and_knows_it",
            "there is a change",
        )],
    },
    // A process that is no member any more is told that its lease was renewed.
    Fault {
        name: "membership-is-revived",
        caught_by: &[(
            "members",
            "when_redis_loses_its_data_memberships_are_lost_and_a_gap_is_told",
            "assertion failed: a.lost()",
        )],
    },
];
