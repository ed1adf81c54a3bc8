//! Every kind's operations below the client while the server's memory is full: what keeps, ends or hands on
//! something is done, what takes more room is refused and leaves no trace.

use redis::cmd;
use redis_concurrent_testkit::RedisServer;

use crate::occupied::{CASES, Case, Holder, Must::Pass, OccupiedLock, Operation, operations};
use crate::rig::server_that_fills;

/// Of these the loop that ends them may let somebody else in.
const OF_A_HOLDER: [&str; 3] = ["an ask of a holder", "a share", "an adoption"];

/// Runs the operation on a lock of its own while the memory is full; says what is wrong with it.
fn runs(
    server: &RedisServer,
    case: Case,
    holder: Holder,
    operation: &Operation,
    room: bool,
) -> Option<String> {
    let (what, must, run) = operation;
    let name = format!("{}-{holder:?}-{}", what.replace(' ', "-"), u8::from(room));
    let case_name = format!("{} {:?}, {holder:?} holder: {what}", case.kind, case.inside);
    let mut lock = OccupiedLock::set(server, case, &name, holder, room);
    let _inboxes = ["b", "c", "n"].map(|who| lock.rig.inbox(server, who));
    let before = lock.rig.everything();
    lock.rig.full(true);
    let outcome = run(&mut lock);
    // One whose lease is over asks as a newcomer does.
    let newcomer = holder == Holder::Lapsed && OF_A_HOLDER.contains(what);
    let wrong = match &outcome {
        Ok(_) => None,
        Err(error) if *must == Pass && !newcomer => Some(format!("{case_name}: {error}")),
        Err(error) if !error.to_string().contains("OOM") && !error.to_string().contains("maxmemory") => {
            Some(format!("{case_name}: it is refused by {error}"))
        }
        Err(_) if lock.rig.everything() != before => {
            Some(format!("{case_name}: it is refused, half-written"))
        }
        Err(_) => None,
    };
    // A release hands the lock on, and a caller that finds it free is let in.
    let frees = what.starts_with("an unlock") || (holder == Holder::Lapsed && *what == "a heartbeat");
    let nobody = ["latch", "barrier"].contains(&case.kind);
    let left_over = wrong.is_none() && frees && !nobody && !lock.is_inside("b");
    lock.rig.full(false);
    let _: () = cmd("FLUSHALL").query(&mut lock.rig.con).unwrap();
    wrong.or(left_over.then(|| format!("{case_name}: a waiter is not let in")))
}

#[test]
fn with_the_memory_full_what_keeps_or_ends_something_passes_and_the_rest_leaves_no_trace() {
    let server = server_that_fills();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for case in CASES {
        for holder in [Holder::Young, Holder::Renewed, Holder::Lapsed] {
            for (operation, room) in operations(case) {
                tried += 1;
                wrong.extend(runs(&server, case, holder, operation, room));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}: {wrong:#?}", wrong.len());
}
