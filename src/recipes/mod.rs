//! What people build on locks, a file or a folder each.

pub mod election;
pub mod fenced;
pub mod inventory;
pub mod once;
pub mod optimistic;
pub mod rate_limiter;
