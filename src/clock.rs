//! The only clock: it counts the time for which the machine was suspended, because Redis does too.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::Instant;

#[cfg(all(unix, not(shuttle)))]
use rustix::time::{ClockId, clock_gettime};

#[cfg(shuttle)]
use crate::sync::time;
use crate::sync::{Condvar, MutexGuard};

/// A duration in milliseconds, at most 49 days, in only four bytes: it is part of every hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Millis(u32);

impl From<Duration> for Millis {
    fn from(d: Duration) -> Self {
        Millis(u32::try_from(d.as_millis()).unwrap_or(u32::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(Millis(ms): Millis) -> Self {
        Duration::from_millis(ms.into())
    }
}

/// A point in time on `CLOCK_BOOTTIME`, in nanoseconds.
///
/// `std::time::Instant` stands still while a Linux machine sleeps; a lease in Redis does not.
///
/// Never zero, so that an `Option<Moment>` takes no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(NonZeroU64);

impl Default for Moment {
    fn default() -> Self {
        Moment::BEGINNING
    }
}

impl Moment {
    /// Later than every deadline: "forever".
    pub(crate) const NEVER: Moment = Moment(NonZeroU64::MAX);
    /// Earlier than every other.
    pub(crate) const BEGINNING: Moment = Moment(NonZeroU64::MIN);

    #[cfg(all(unix, not(shuttle)))]
    pub(crate) fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: ClockId = ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: ClockId = ClockId::Monotonic;
        let t = clock_gettime(CLOCK);
        Moment::of(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// Windows counts the time of a suspended machine here, too.
    #[cfg(not(any(unix, shuttle)))]
    pub(crate) fn now() -> Self {
        static FIRST: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        // Far from both ends.
        Moment::of(1 << 62).after(FIRST.elapsed())
    }

    #[cfg(shuttle)]
    pub(crate) fn now() -> Self {
        time::now()
    }

    pub(crate) const fn of(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Moment(nanos),
            None => Moment::BEGINNING,
        }
    }

    /// The moment `d` later; an enormous `d` gives `NEVER`.
    pub(crate) fn after(self, d: Duration) -> Self {
        Moment(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The moment `d` earlier, at the earliest `BEGINNING`.
    pub(crate) fn before(self, d: Duration) -> Self {
        Moment::of(self.0.get().saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long from `earlier` to here; zero if `earlier` is later.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The same moment for a parking_lot wait, which takes only an `Instant`. It may come late by the time
    /// for which the machine was suspended, so a woken thread compares with this clock again.
    #[cfg(not(shuttle))]
    fn instant(self) -> Option<Instant> {
        Instant::now().checked_add(self.since(Moment::now()))
    }

    #[cfg(shuttle)]
    fn instant(self) -> Option<Moment> {
        (self < Moment::NEVER).then_some(self)
    }

    /// Waits until the condvar is notified, or until this moment.
    pub(crate) fn wait_on<T>(self, condvar: &Condvar, guard: &mut MutexGuard<'_, T>) {
        match self.instant() {
            Some(instant) => drop(condvar.wait_until(guard, instant)),
            None => condvar.wait(guard),
        }
    }
}

/// The latest of the moments that threads have stored.
#[derive(Debug, Default)]
pub(crate) struct LatestMoment(AtomicU64);

impl LatestMoment {
    pub(crate) fn get(&self) -> Moment {
        Moment::of(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn put(&self, moment: Moment) {
        self.0.fetch_max(moment.0.get(), Ordering::AcqRel);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../verify/unit/clock.rs"]
mod tests;
