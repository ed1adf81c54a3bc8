//! Layers for HTTP servers, kept in Redis by [`redis_concurrent`], so that all servers on one Redis act as one.
//!
//! - [`IdempotencyLayer`] makes a handler idempotent by the `Idempotency-Key` of its requests.
//! - [`RateLimitLayer`] limits requests by a key that is taken from each.
//!
//! Both are layers of `tower`, for services that take an [`http::Request`] and return an [`http::Response`], with
//! bodies of any type whose data are [`Bytes`](bytes::Bytes): those of axum, for example. Connect the
//! [`Client`](redis_concurrent::Client) before the runtime starts, as that blocks, and close it after the server.
//!
//! A request at a Redis that does not reply ends after the client's
//! [command timeout](redis_concurrent::ClientBuilder::command_timeout); as at most eight are on their way at once,
//! more of them wait in line: choose a short one, and limit the number of requests in progress outside of these layers.

#![forbid(unsafe_code)]
#![deny(missing_docs, missing_debug_implementations)]

/// Runs the page's example as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod page {}

mod answer;
mod body;
mod idempotency;
mod onward;
mod problem;
mod rate_limit;

pub use body::Body;
pub use idempotency::{Attempt, Idempotency, IdempotencyLayer};
pub use rate_limit::{RateLimit, RateLimitLayer};
