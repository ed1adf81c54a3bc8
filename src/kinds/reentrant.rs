//! The lock to use when in doubt: its holder may acquire it again, and is recorded in Redis.

use crate::kind::{Exclusive, Kind, Reentrancy};

/// The kind of [`ReentrantLock`](crate::ReentrantLock): a hash with the owner, its number, and a record of
/// the host, process and client name of its holder.
///
/// A thread that holds it may lock it again, and must release each guard; that costs no round trip, because
/// **the hold count is kept in the process and never in Redis**. A count in Redis is wrong as soon as a
/// request is sent twice: an acquire whose reply was lost and which is sent again would count twice, and the
/// `unlock` missing for it would leave the lock held forever by a renewal that cannot be stopped. Redis knows
/// the grant, the process its depth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reentrant;

impl Kind for Reentrant {
    const NAME: &'static str = "reentrant lock";
    const RULE: &'static str = rule_file!("../../lua/reentrant.lua");
    const REENTRANCY: Reentrancy = Reentrancy::Counted;
}

impl Exclusive for Reentrant {}
