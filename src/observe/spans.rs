//! Spans of `tracing`: how long a call waited, and how long a lock was held, within what called it.

#[cfg(feature = "tracing")]
use std::cell::LazyCell;

use super::events::LockInfo;

/// Open until it is dropped. In a box, as every hold has room for one, and hardly any process has a subscriber that
/// wants it.
#[derive(Debug)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    _span: Box<tracing::Span>,
}

/// A span, if a subscriber wants it. What it says of the lock is not computed otherwise.
#[cfg(feature = "tracing")]
macro_rules! span {
    ($name:literal, $lock:expr) => {{
        let lock = LazyCell::new($lock);
        let span = tracing::debug_span!(
            target: super::tracing::TARGET, $name, lock = lock.name, kind = lock.kind
        );
        (!span.is_none()).then(|| Span { _span: Box::new(span) })
    }};
}

#[cfg(not(feature = "tracing"))]
macro_rules! span {
    ($name:literal, $lock:expr) => {{
        let _ = $lock;
        None
    }};
}

impl Span {
    /// A thread waits for `lock`.
    pub(crate) fn wait<'a>(lock: impl FnOnce() -> LockInfo<'a>) -> Option<Span> {
        span!("lock.wait", lock)
    }

    /// A caller holds `lock`.
    pub(crate) fn hold<'a>(lock: impl FnOnce() -> LockInfo<'a>) -> Option<Span> {
        span!("lock.hold", lock)
    }
}
