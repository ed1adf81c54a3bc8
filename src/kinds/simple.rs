//! The smallest lock: a string key.

use crate::kind::{Exclusive, Kind, Reentrancy};

/// The kind of [`SimpleLock`](crate::SimpleLock): a string key as `SET key owner NX PX lease` leaves it,
/// deleted only by its owner. A client in any language that locks the key in this way is a holder like any
/// other: see [`Client::simple_lock_at`](crate::Client::simple_lock_at).
///
/// Not reentrant: a thread that holds it and asks again gets
/// [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock) at once (`try_lock`: `None`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Simple;

impl Kind for Simple {
    const NAME: &'static str = "simple lock";
    const RULE: &'static str = rule_file!("../../lua/simple.lua");
    const REENTRANCY: Reentrancy = Reentrancy::Forbidden;
}

impl Exclusive for Simple {}
