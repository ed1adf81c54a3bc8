//! The identity of the process: a forked child has copies of its parent's locks, and must not use them.
//!
//! It is the process id, which a child in a PID namespace of its own may share with its parent. A second sign
//! (the namespace, the start time) would cost each call another system call, and a page that a fork wipes
//! needs `unsafe`.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;

/// A thread that was in a process less than this ago cannot be in a forked child of it: a fork takes longer.
const FORK: Duration = Duration::from_micros(10);

thread_local! {
    /// The id of the process that the thread last found itself in, and when that was.
    static SEEN: Cell<(u32, Moment)> = const { Cell::new((0, Moment::BEGINNING)) };
}

/// Returns the id of this process. `now` is the time that the caller has just read. A system call takes
/// longer than the rest of a re-entry, so a thread that re-enters again and again makes it only now and then.
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
