//! The lock to take when in doubt: its holder may come in again, and is named in Redis.

use crate::kind::{Exclusive, Kind, Reentrancy, Sharing};

/// The kind of [`ReentrantLock`](crate::ReentrantLock): a hash with the owner, its number, and a
/// record of the host, process and label that hold it.
///
/// A thread that holds it may lock it again, and must give back each guard; that costs no round
/// trip, because **how often it holds is counted in the process and never in Redis**. A count in
/// Redis is wrong as soon as a request is sent twice: an acquire whose answer was lost and which
/// is sent again would count twice, and one `unlock` too few leaves the lock held for ever by a
/// renewal that nobody can end. Redis knows the tenure, the process knows its depth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reentrant;

impl Kind for Reentrant {
    const NAME: &'static str = "reentrant lock";
    const RULE: &'static str = include_str!("../../lua/reentrant.lua");
    const SHARING: Sharing = Sharing::Exclusive;
    const REENTRY: Reentrancy = Reentrancy::Counted;
}

impl Exclusive for Reentrant {}
