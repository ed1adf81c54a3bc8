//! Faults of locks that a process keeps after the last unlock.

use super::{Fault, STRAIGHT};

pub(super) const FAULTS: &[Fault] = &[
    // A process that is granted the lock out of the queue, and keeps it, is not notified of the waiters
    // behind it.
    Fault {
        name: "not-wanted-behind-a-grant",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::kept::others_wait_behind_each_other",
                "nobody waits for what nobody holds",
            ),
            (
                "lua",
                "linger::a_keeper_is_told_with_its_grant_that_there_are_waiters",
                "assertion `left == right`",
            ),
        ],
    },
    // The message that a kept lock is wanted is not repeated. (The models do not see it: there, the time for
    // which it is kept ends it, too.)
    Fault {
        name: "not-wanted-by-a-heartbeat",
        caught_by: &[
            ("lua", "linger::each_heartbeat_tells_the_keeper_again", "assertion `left == right`"),
            ("locks", "linger::trouble::a_lost_message_costs_a_heartbeat", "and not all of"),
        ],
    },
    // A process whose inbox broke does not give back what it kept.
    Fault {
        name: "deaf-keeps",
        caught_by: &[
            (
                "lib",
                "engine::model::worlds::kept::the_inbox_of_its_process_breaks",
                "a process that is not told keeps nothing",
            ),
            ("locks", "linger::trouble::its_inbox_breaks", "the lock is given back"),
        ],
    },
    // A client that begins to listen gives back what it keeps since then, as if that had missed messages, too.
    Fault {
        name: "told-after-it-listens",
        caught_by: &[("locks", "linger::used::it_stays_from_the_first_time_on", "it is the same grant")],
    },
    // The end of a kept lock that no thread held is reported as a loss.
    Fault {
        name: "idle-end-is-a-loss",
        caught_by: &[(
            "lib",
            "engine::lock_state_tests::kept::its_end_is_no_loss",
            "assertion `left == right`",
        )],
    },
    // A release hands the lock straight to a process that keeps it, without a word of the waiters behind it.
    Fault {
        name: "handed-to-a-keeper",
        caught_by: &[
            ("lua", STRAIGHT, "it is kept"),
            (
                "lua",
                "linger::a_keeper_is_told_with_its_grant_that_there_are_waiters",
                "assertion `left == right`",
            ),
        ],
    },
];
