//! The test kit for locks: private Redis servers and clusters, a proxy that breaks connections on demand,
//! child processes, waiting with a timeout, and the contract suite for lock kinds.
//!
//! The tests, examples and benches of `redis-concurrent` use it, and so can the author of a
//! [`Kind`](redis_concurrent::kinds::Kind): [`contract`](mod@contract) tests your own kind in one line.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use redis_concurrent::Client;
//! use redis_concurrent_testkit::RedisServer;
//!
//! let server = RedisServer::start()?; // killed, and its folder deleted, when dropped
//! let client = Client::connect(&server.url())?;
//! client.simple_lock("nightly").lock()?.unlock()?;
//! assert!(server.command_calls()?["evalsha"] >= 2);
//! # Ok(())
//! # }
//! ```
//!
//! Only the contract suite knows the locks and keys of `redis-concurrent`; everything else sets up a scene
//! and observes it from outside. The crate needs a Unix with `sh`, and `redis-server` 7.0 or later on the
//! search path, or the program that `REDIS_SERVER_BIN` names. Its version is that of the library that it
//! tests, and only the contract suite is a stable interface.

mod barrier;
mod children;
mod closing;
mod cluster;
mod cluster_doors;
mod cluster_options;
mod cluster_view;
pub mod contract;
mod expiry;
mod faults;
mod process;
mod proxy;
mod pump;
mod reserved;
mod scripts;
mod sentinels;
mod server;
mod server_options;
mod server_view;
mod wait;

pub use barrier::Barrier;
pub use children::{Child, hear_parent, is_role, tell_parent};
pub use closing::{closes_in_time, released_all};
pub use cluster::RedisCluster;
pub use cluster_options::RedisClusterBuilder;
pub use expiry::expires_at;
pub use proxy::Proxy;
pub use redis_concurrent::internals::{fenced_script, rate_limiter_script};
pub use scripts::{ScriptTexts, scripts};
pub use sentinels::{Sentinel, SentinelFleet, SentinelFleetBuilder};
pub use server::{ClientKind, RedisServer};
pub use server_options::{RedisServerBuilder, TlsFiles};
pub use wait::{eventually, wait_until};
