//! Holds that count only once replicas have them, on a primary and two replicas.

mod acknowledged;
mod failover;
mod planned;
