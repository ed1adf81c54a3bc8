//! What a service can observe: one trait, whose methods do nothing by default.

mod events;
#[cfg(feature = "metrics")]
mod metrics;
mod observers;
mod tracing;

use std::cell::LazyCell;

pub use self::events::{AcquiredVia, KeptEnd, LockInfo, LossReason, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::observers::Observation;
pub(crate) use self::observers::{Observers, serves_holds};

/// A span of `tracing` inside the caller's, open until it is dropped. Boxed, as every hold has a field for it, and few processes have a
/// subscriber that wants it.
#[derive(Debug)]
pub(crate) struct Span {
    _span: Box<::tracing::Span>,
}

/// Opens a span if a subscriber wants it; otherwise its fields are not computed.
macro_rules! span {
    ($name:literal, $lock:expr) => {{
        if !self::tracing::TRACED {
            return None;
        }
        let lock = LazyCell::new($lock);
        let span = ::tracing::debug_span!(
            target: self::tracing::TARGET, $name, lock = lock.name, kind = lock.kind
        );
        (!span.is_none()).then(|| Span { _span: Box::new(span) })
    }};
}

impl Span {
    /// Opens a span for a thread that waits for `lock`.
    pub(crate) fn wait<'a>(lock: impl FnOnce() -> LockInfo<'a>) -> Option<Span> {
        span!("lock.wait", lock)
    }

    /// Opens a span for a caller that holds `lock`.
    pub(crate) fn hold<'a>(lock: impl FnOnce() -> LockInfo<'a>) -> Option<Span> {
        span!("lock.hold", lock)
    }
}
