//! The engine's invariants, each by its name, against real servers, sockets and processes.
//!
//! The eleventh, *only-the-process-that-acquired-releases*, is in `fork.rs`.

#[path = "invariants/support.rs"]
mod support;

#[path = "invariants/a_grant_is_never_dropped.rs"]
mod a_grant_is_never_dropped;
#[path = "invariants/bounded_bypass.rs"]
mod bounded_bypass;
#[path = "invariants/connections.rs"]
mod connections;
#[path = "invariants/lost_is_final.rs"]
mod lost_is_final;
#[path = "invariants/no_sleep_before_subscribed.rs"]
mod no_sleep_before_subscribed;
#[path = "invariants/nothing_left_behind.rs"]
mod nothing_left_behind;
#[path = "invariants/one_deadline.rs"]
mod one_deadline;
#[path = "invariants/one_deadline_settling.rs"]
mod one_deadline_settling;
#[path = "invariants/one_owner.rs"]
mod one_owner;
#[path = "invariants/parks_are_bounded.rs"]
mod parks_are_bounded;
#[path = "invariants/unknown_is_settled.rs"]
mod unknown_is_settled;
#[path = "invariants/validity_from_before_send.rs"]
mod validity_from_before_send;
