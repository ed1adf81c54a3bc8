//! What the tests, the demo and the benches run on: a private Redis server, a proxy that
//! breaks connections on demand, child processes and waiting with a limit.
//!
//! What may go in here: means to set a scene and to look at it from outside. But for
//! [`contract`](mod@contract), what every lock must do, [`scripts`] and [`fenced_script`], nothing in
//! here knows a lock or a key of this crate, and nothing outside the tests, the demo and the benches
//! may use it, so the whole module stands behind the feature `testing` and promises no stable
//! interface. It needs a Unix with `sh`, and `redis-server` 7.0 or later,
//! or one that `ci/servers.sh` obtains.

mod children;
pub mod contract;
mod expiry;
mod faults;
mod process;
mod proxy;
mod pump;
mod scripts;
mod server;
mod server_options;
mod server_view;
mod wait;

pub use children::{Child, hear_parent, is_role, tell_parent};
pub use expiry::expires_at;
pub use proxy::Proxy;
pub use scripts::{Scripts, fenced_script, scripts};
pub use server::{ClientKind, RedisServer};
pub use server_options::RedisServerBuilder;
pub use wait::{eventually, wait_until};
