//! The engine's invariants, each by its name, against real servers, sockets and processes.
//!
//! The eleventh, *only-the-process-that-acquired-releases*, is in `fork.rs`.

mod a_grant_is_never_dropped;
mod bounded_bypass;
mod connections;
mod lost_is_final;
mod no_sleep_before_subscribed;
mod nothing_left_behind;
mod one_deadline;
mod one_deadline_settling;
mod one_owner;
mod parks_are_bounded;
mod unknown_is_settled;
mod validity_from_before_send;
