//! Which process this is: a forked child has a copy of its parent's locks, and may use none of them.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;

/// A thread that was in this process so recently cannot be in a forked child: a fork takes longer.
const FORK: Duration = Duration::from_micros(10);

thread_local! {
    /// The process in which the thread last found itself, and when.
    static SEEN: Cell<(u32, Moment)> = const { Cell::new((0, Moment::BEGINNING)) };
}

/// The process in which this thread is at `now`, which its caller has just read off the clock. Asking the
/// system takes longer than the rest of a re-entry: so a thread that re-enters again and again asks only now
/// and then.
pub(crate) fn id(now: Moment) -> u32 {
    match SEEN.get() {
        (process, at) if process != 0 && now.since(at) < FORK => process,
        _ => {
            let process = std::process::id();
            SEEN.set((process, now));
            process
        }
    }
}
