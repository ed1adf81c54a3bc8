//! The pool of a server's connections, and what is known of them. What is sent on them is an
//! [exchange](crate::engine::redis::exchange).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::LatestMoment;
use crate::engine::redis::batch::Batch;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::pool::{Aside, Pool, Pools, Threads};
use crate::sync::RwLock;

/// The pool, and the state and counters beside it.
#[derive(Default)]
pub(crate) struct Backend {
    /// With the threads that read what nobody else has read in time. Gone once the client is closed.
    pub(in crate::engine) pool: RwLock<Option<(Pool, Threads)>>,
    /// The connections that are not in use, or on which a reply is still to be read.
    pub(in crate::engine) aside: Aside,
    /// Requests that wait for a connection.
    pub(in crate::engine) batch: Batch,
    requests: AtomicU64,
    /// When a connection last broke.
    pub(in crate::engine) broke: LatestMoment,
    /// When another server was last found to be the primary: connections made before may not lead there.
    pub(crate) moved: LatestMoment,
    /// When a server last said that it is not the primary; the beginning if none ever did.
    pub(crate) refused: LatestMoment,
}

impl Backend {
    pub(crate) fn new(pools: &Pools, manager: ConnectionManager) -> Self {
        let pool = (pools.pool(manager), pools.threads.clone());
        Backend { pool: RwLock::new(Some(pool)), ..Backend::default() }
    }

    /// Requests sent so far, by any thread.
    pub(crate) fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        // The pool shuts down with its last user, so this happens outside our mutex.
        let pool = self.pool.write().take();
        drop(pool);
        self.aside.end();
    }
}
