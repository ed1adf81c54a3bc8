//! Connections and their pool: the `redis` crate's and r2d2's.
//!
//! Built with `--cfg shuttle` they lead to a small Redis in the same thread, as its scheduler can
//! neither stop nor start a socket.

#[cfg(shuttle)]
#[cfg_attr(not(test), allow(dead_code, unused_imports))]
pub(crate) mod memory;

#[cfg(shuttle)]
pub(crate) use self::memory::{Connection, Pool, Pooled, PubSub, connect, pool};

#[cfg(not(shuttle))]
pub(crate) use self::real::{Connection, Pool, Pooled, PubSub, connect, pool};

#[cfg(not(shuttle))]
mod real {
    use std::time::Duration;

    pub(crate) use redis::{Connection, PubSub};

    use crate::engine::backend::ConnectionManager;

    pub(crate) type Pool = r2d2::Pool<ConnectionManager>;
    pub(crate) type Pooled = r2d2::PooledConnection<ConnectionManager>;

    pub(crate) fn connect(client: &redis::Client, limit: Duration) -> redis::RedisResult<Connection> {
        client.get_connection_with_timeout(limit)
    }

    pub(crate) fn pool(builder: r2d2::Builder<ConnectionManager>, manager: ConnectionManager) -> Pool {
        builder
            .test_on_check_out(false)
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .build_unchecked(manager)
    }
}
