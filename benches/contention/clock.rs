//! The clocks: one that all processes of the machine share, and the CPU time of this one.

use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the machine's monotonic clock.
pub(crate) fn now() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Nanoseconds of CPU that this process has used, in all its threads.
pub(crate) fn cpu() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// Sleeps until `moment` on [`now`]'s clock.
pub(crate) fn sleep_until(moment: u64) {
    thread::sleep(Duration::from_nanos(moment.saturating_sub(now())));
}

/// Waits for `us` microseconds: spins if they are few, as no sleep is that exact, and otherwise sleeps.
pub(crate) fn pass(us: u64) {
    const SHORT: u64 = 100;
    match us {
        0 => {}
        1..SHORT => {
            let end = now() + us * 1_000;
            while now() < end {
                std::hint::spin_loop();
            }
        }
        _ => thread::sleep(Duration::from_micros(us)),
    }
}
