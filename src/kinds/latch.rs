//! A count that threads wait for.

use crate::kind::{Kind, Reentry, Sharing};

/// The kind of [`CountDownLatch`](crate::CountDownLatch): a hash with the count, which is its user's own
/// state and has no end unless it is given one.
///
/// Nobody holds a latch. Who is let in has passed: there is nothing in Redis of it, and nothing to give
/// back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latch;

impl Kind for Latch {
    const NAME: &'static str = "count-down latch";
    const RULE: &'static str = include_str!("../../lua/latch.lua");
    const SHARING: Sharing = Sharing::Passed;
    const REENTRY: Reentry = Reentry::Another;
}
