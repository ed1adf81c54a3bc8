//! The layers, in a real axum server, asked over loopback.

mod idempotency;
mod kill;
mod rate_limit;
mod web;
