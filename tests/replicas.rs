//! Holds that count only once replicas have them, on a primary and two replicas.

#[path = "invariants/support.rs"]
mod support;

#[path = "replicas/acknowledged.rs"]
mod acknowledged;
#[path = "replicas/contenders.rs"]
mod contenders;
#[path = "replicas/failover.rs"]
mod failover;
#[path = "replicas/flock.rs"]
mod flock;
#[path = "replicas/planned.rs"]
mod planned;
