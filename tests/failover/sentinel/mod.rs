//! Clients whose primary is named by sentinels: failovers, and sentinels that are wrong, or away.

mod failover;
mod fake;
mod lies;
