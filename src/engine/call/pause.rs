//! Sleeping for a given time. Only the end of the call or of the client wakes the thread earlier.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::sync::{Condvar, Mutex};
use crate::wait::Wait;

/// Sleeps until `until`, the call's deadline, a cancellation or the client's close, whichever comes first.
/// The caller has to check which it was.
pub(crate) fn pause(shared: &Shared, until: Moment, wait: &Wait<'_>) {
    let bed = Arc::new((Mutex::new(()), Condvar::new()));
    let wake = || {
        let bed = bed.clone();
        move || {
            // Locked so that a thread about to sleep either sees the reason first or is woken by it.
            drop(bed.0.lock());
            bed.1.notify_one();
        }
    };
    let _ended = shared.ended.on_cancel(wake());
    let _cancelled = wait.cancel.map(|token| token.on_cancel(wake()));
    let until = wait.deadline.map_or(until, |deadline| until.min(deadline));
    let mut asleep = bed.0.lock();
    // In a loop, as a machine that was suspended has slept less than its clock says.
    while !shared.is_closed() && !wait.is_cancelled() && Moment::now() < until {
        until.wait_on(&bed.1, &mut asleep);
    }
}
