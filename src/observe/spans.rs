//! Spans of `tracing`: how long a call waited, and how long a lock was held, within what called it.

use super::events::LockInfo;

/// Open until it is dropped. Nothing, unless a subscriber wants it.
#[derive(Debug)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    _span: tracing::Span,
}

impl Span {
    /// A thread waits for `lock`.
    pub(crate) fn wait(lock: LockInfo<'_>) -> Span {
        #[cfg(not(feature = "tracing"))]
        let _ = lock;
        Span {
            #[cfg(feature = "tracing")]
            _span: tracing::debug_span!(
                target: super::tracing::TARGET, "lock.wait", lock = lock.name, kind = lock.kind
            ),
        }
    }

    /// A caller holds `lock`.
    pub(crate) fn hold(lock: LockInfo<'_>) -> Span {
        #[cfg(not(feature = "tracing"))]
        let _ = lock;
        Span {
            #[cfg(feature = "tracing")]
            _span: tracing::debug_span!(
                target: super::tracing::TARGET, "lock.hold", lock = lock.name, kind = lock.kind
            ),
        }
    }
}
