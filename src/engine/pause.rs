//! Sleeping for a given time; only the end of the call wakes it earlier.

use std::sync::Arc;

use super::runtime::Shared;
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex};
use crate::wait::Wait;

/// Sleeps until `until`, and no longer than the call may take; a cancellation and the client's end wake it.
/// The caller finds out which of these it was by looking.
pub(crate) fn pause(shared: &Shared, until: Moment, wait: &Wait<'_>) {
    let bed = Arc::new((Mutex::new(()), Condvar::new()));
    let wake = || {
        let bed = bed.clone();
        move || {
            // A thread that is about to sleep has looked already, or will see why it is woken.
            drop(bed.0.lock());
            bed.1.notify_one();
        }
    };
    let _ended = shared.ended.on_cancel(wake());
    let _cancelled = wait.cancel.map(|token| token.on_cancel(wake()));
    let until = wait.deadline.map_or(until, |deadline| until.min(deadline));
    let mut asleep = bed.0.lock();
    // More than once, as a machine that was suspended has slept less than its clock says.
    while !shared.is_closed() && !wait.is_cancelled() && Moment::now() < until {
        match until.instant() {
            Some(instant) => drop(bed.1.wait_until(&mut asleep, instant)),
            None => bed.1.wait(&mut asleep),
        }
    }
}
