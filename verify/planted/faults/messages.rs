//! Faults of grants that a message announces, and of what a message is believed.

use super::{CHANCE, Fault, REPLAY, STRAIGHT};

pub(super) const FAULTS: &[Fault] = &[
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
    // A head whose inbox broke is passed by whoever connects again before it.
    Fault {
        name: "order-by-reconnecting",
        caught_by: &[(
            "lua",
            "operations::granting::a_waiter_that_does_not_listen_is_waited_for_until_its_heartbeat_is_overdue",
            "simple",
        )],
    },
    // A release hands the lock straight to a waiter that nobody here listens for.
    Fault {
        name: "handed-to-the-deaf",
        caught_by: &[("lib", REPLAY, "replay/compare.rs:"), ("lua", STRAIGHT, "its inbox broke")],
    },
    // A release hands the lock straight to a waiter that has missed its heartbeats.
    Fault {
        name: "handed-to-the-silent",
        caught_by: &[("lua", STRAIGHT, "it is silent, and another was heard")],
    },
];

const WORTH: &str =
    "engine::lock_state_tests::grants::a_message_is_worth_no_more_than_a_first_lease_and_is_confirmed_soon";
