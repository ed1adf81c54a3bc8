//! What a service may watch: one trait, empty by default.

mod events;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;
mod watch;

pub use self::events::{AcquiredVia, LockInfo, LossReason, Observer};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::watch::Observation;
pub(crate) use self::watch::Watch;
