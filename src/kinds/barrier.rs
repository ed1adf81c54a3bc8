//! A meeting of threads, round after round.

use crate::kind::{Kind, Reentry, Sharing};

/// The kind of [`CyclicBarrier`](crate::CyclicBarrier): the queue itself is the round. Redis lets in the last
/// one to come, and then those who wait.
///
/// Each that is let in has an entry in Redis until its own thread gives it back: so one whose message was lost
/// finds at its next beat that it has passed, and does not wait for another round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier;

impl Kind for Barrier {
    const NAME: &'static str = "cyclic barrier";
    const RULE: &'static str = include_str!("../../lua/barrier.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRY: Reentry = Reentry::Another;
}
