//! The events of locks, as metrics for the `metrics` facade.

use std::time::Duration;

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::events::{AcquiredVia, KeptEnd, LockInfo, LossReason, Observer};
use crate::error::Error;

/// The metrics: each with its name, its unit, and what it says.
macro_rules! series {
    ($($describe:ident $NAME:ident $name:literal $unit:ident $text:literal,)*) => {
        $(const $NAME: &str = $name;)*

        fn describe() {
            $($describe!($NAME, Unit::$unit, $text);)*
        }
    };
}

series! {
    describe_gauge WAITING "redis_concurrent_waiting" Count "Threads that wait for a lock now",
    describe_gauge HELD "redis_concurrent_held" Count "Holds that this process has now",
    describe_histogram WAIT "redis_concurrent_wait_seconds" Seconds
        "How long calls waited for a lock, by what came of it",
    describe_counter DEADLOCKS "redis_concurrent_deadlocks_total" Count
        "Circles of threads that wait for each other's locks",
    describe_histogram HOLD "redis_concurrent_hold_seconds" Seconds
        "How long locks were held until they were given back",
    describe_counter KEPT_ENDS "redis_concurrent_kept_ends_total" Count
        "Locks that were kept while no thread held them, and given back",
    describe_counter LOSSES "redis_concurrent_losses_total" Count "Holds that ended before they were given back",
    describe_histogram RENEWAL_LAG "redis_concurrent_renewal_lag_seconds" Seconds
        "How much later than due renewals were sent",
    describe_histogram RENEWAL_LEFT "redis_concurrent_renewal_left_seconds" Seconds
        "The remaining lease when the reply to its renewal came",
    describe_histogram RENEWAL_LOAD "redis_concurrent_renewal_load_ratio" Count
        "Renewals under way or waiting for it, of those that can be under way at once (1 is all)",
    describe_counter RENEWAL_FAILURES "redis_concurrent_renewal_failures_total" Count
        "Renewals that were rejected or had no reply",
    describe_counter RELEASES_ABANDONED "redis_concurrent_releases_abandoned_total" Count
        "Releases that Redis did not answer until the lease was over",
    describe_counter UNLOCK_FAILURES "redis_concurrent_unlock_failures_total" Count
        "Releases by dropped guards that failed",
    describe_histogram INBOX_DOWN "redis_concurrent_inbox_down_seconds" Seconds
        "How long the connection for wake-ups was down",
}

/// An [`Observer`] that reports metrics through the [`metrics`] facade, to the recorder that the process has
/// installed. With the feature `metrics`.
///
/// All metrics about locks have the label `kind`; [operations](crate::guide::operations#what-to-watch) lists
/// them, with their other labels and what to alert on.
///
/// ```
/// use redis_concurrent::Client;
/// use redis_concurrent::observe::MetricsObserver;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::builder().url(&url).observer(MetricsObserver::default()).connect()?;
/// # Ok(())
/// # }
/// ```
pub struct MetricsObserver {
    /// Computes the label `lock` from a lock's name, if that label is enabled.
    label: Option<Box<Grouping>>,
}

/// From a lock's name to the value of the label `lock`.
type Grouping = dyn Fn(&str) -> String + Send + Sync;

impl MetricsObserver {
    /// Adds the label `lock`, which `group` computes from the lock's name: `stock` from `stock:42`, say, or the
    /// name itself (`str::to_owned`). It should have few values, as each creates series that stay in the recorder,
    /// and be quick: it is called for each event.
    ///
    /// ```
    /// # use redis_concurrent::observe::MetricsObserver;
    /// let by_prefix = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    /// let observer = MetricsObserver::default().with_groups(by_prefix);
    /// # drop(observer);
    /// ```
    #[must_use]
    pub fn with_groups(self, group: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        MetricsObserver { label: Some(Box::new(group)) }
    }

    /// Records that a hold reported as [`acquired`](Observer::acquired) has ended.
    fn ended(&self, lock: LockInfo<'_>) {
        if lock.is_held {
            gauge!(HELD, self.labels(lock, None)).decrement(1.0);
        }
    }

    fn labels(&self, lock: LockInfo<'_>, more: Option<(&'static str, &'static str)>) -> Vec<Label> {
        let mut labels = Vec::with_capacity(3);
        labels.push(Label::from_static_parts("kind", lock.kind));
        labels.extend(more.map(|(key, value)| Label::from_static_parts(key, value)));
        labels.extend(self.label.as_ref().map(|label| Label::new("lock", label(lock.name))));
        labels
    }
}

shows!(MetricsObserver as "MetricsObserver", |it| "labels_names": it.label.is_some());

impl Default for MetricsObserver {
    fn default() -> Self {
        describe();
        MetricsObserver { label: None }
    }
}

impl Observer for MetricsObserver {
    fn wait_began(&self, lock: LockInfo<'_>) {
        gauge!(WAITING, self.labels(lock, None)).increment(1.0);
    }

    fn wait_ended(&self, lock: LockInfo<'_>) {
        gauge!(WAITING, self.labels(lock, None)).decrement(1.0);
    }

    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, via: AcquiredVia) {
        if lock.is_held {
            gauge!(HELD, self.labels(lock, None)).increment(1.0);
        }
        histogram!(WAIT, self.labels(lock, Some(("outcome", via.text())))).record(waited);
    }

    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {
        let outcome = error.map_or("busy", |error| error.kind().text());
        histogram!(WAIT, self.labels(lock, Some(("outcome", outcome)))).record(waited);
    }

    fn deadlock(&self, lock: LockInfo<'_>, _: &str, chosen: bool) {
        let victim = if chosen { "this" } else { "none" };
        counter!(DEADLOCKS, self.labels(lock, Some(("victim", victim)))).increment(1);
    }

    fn released(&self, lock: LockInfo<'_>, held: Duration) {
        self.ended(lock);
        histogram!(HOLD, self.labels(lock, Some(("end", "released")))).record(held);
    }

    fn no_longer_kept(&self, lock: LockInfo<'_>, why: KeptEnd) {
        counter!(KEPT_ENDS, self.labels(lock, Some(("why", why.text())))).increment(1);
    }

    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {
        histogram!(RENEWAL_LAG, self.labels(lock, None)).record(lag);
        histogram!(RENEWAL_LEFT, self.labels(lock, None)).record(left);
    }

    fn renewal_load(&self, under_way: usize, most: usize) {
        histogram!(RENEWAL_LOAD).record(under_way as f64 / most as f64);
    }

    fn renewal_failed(&self, lock: LockInfo<'_>, _: Duration, error: &Error) {
        counter!(RENEWAL_FAILURES, self.labels(lock, Some(("error", error.kind().text())))).increment(1);
    }

    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        self.ended(lock);
        counter!(LOSSES, self.labels(lock, Some(("why", why.word())))).increment(1);
    }

    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {
        self.ended(lock);
        histogram!(HOLD, self.labels(lock, Some(("end", "deferred")))).record(held);
    }

    fn release_abandoned(&self, lock: LockInfo<'_>, _: &Error) {
        counter!(RELEASES_ABANDONED, self.labels(lock, None)).increment(1);
    }

    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {
        counter!(UNLOCK_FAILURES, self.labels(lock, Some(("error", error.kind().text())))).increment(1);
    }

    fn reconnected(&self, down: Duration) {
        histogram!(INBOX_DOWN).record(down);
    }
}
