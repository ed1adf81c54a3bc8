//! What a service may watch: one trait, empty by default.

mod events;
#[cfg(feature = "metrics")]
mod metrics;
mod observers;
#[cfg(feature = "tracing")]
mod tracing;

pub use self::events::{AcquiredVia, LockInfo, LossReason, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::observers::Observation;
pub(crate) use self::observers::Observers;
