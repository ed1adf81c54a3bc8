//! Faults of waits for a condition's signal.

use super::{Fault, STRAIGHT};

pub(super) const FAULTS: &[Fault] = &[
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
                "wait_with(&mut guard, LONG)",
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
                "wait_with(&mut guard, LONG)",
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
    // A release hands the lock straight to a waiter that was signalled, and nobody passes the signal on if that
    // waiter has died.
    Fault { name: "handed-past-a-signal", caught_by: &[("lua", STRAIGHT, "it comes by a signal")] },
];
