//! What a service can observe: one trait, whose methods do nothing by default.

mod events;
#[cfg(feature = "metrics")]
mod metrics;
mod observers;
mod spans;
#[cfg(feature = "tracing")]
mod tracing;

pub use self::events::{AcquiredVia, KeptEnd, LockInfo, LossReason, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::observers::Observation;
pub(crate) use self::observers::{Observers, serves_holds};
pub(crate) use self::spans::Span;
