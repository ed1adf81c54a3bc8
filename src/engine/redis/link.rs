//! A pooled connection's link to Redis: open, or why it is not.
//!
//! r2d2 connects in threads of its own, and responds to a failure by connecting again and again until the
//! waiter has no time left. So a failure counts as a connection too: one without a link, which returns the
//! error to the waiter at once.

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ConnectionLike as _, RedisError, RedisResult, Value};

use crate::engine::redis::greeting::Greeting;
use crate::engine::redis::wire;

/// The number of open links of one pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLinks(Arc<AtomicUsize>);

impl OpenLinks {
    fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// A link, with the methods of a connection that the engine uses.
pub(crate) struct Link {
    state: State,
    all: OpenLinks,
    /// Still to be written in front of the first request.
    greeting: Greeting,
    /// The reply to the greeting has not been read yet.
    greeted: bool,
}

enum State {
    Open(wire::Connection),
    Failed(RedisError),
    Closed,
}

impl Link {
    /// Creates a link from the result of connecting, with what is to be sent first.
    pub(crate) fn new(dialled: RedisResult<wire::Connection>, greeting: Greeting, all: OpenLinks) -> Link {
        let state = match dialled {
            Ok(connection) => {
                all.0.fetch_add(1, Ordering::Relaxed);
                State::Open(connection)
            }
            Err(failure) => State::Failed(failure),
        };
        Link { state, all, greeting, greeted: false }
    }

    /// Returns why connecting failed, if it did.
    pub(crate) fn failure(&self) -> Option<&RedisError> {
        if let State::Failed(failure) = &self.state { Some(failure) } else { None }
    }

    /// Whether other links of its pool are open: if so, one of them may soon be free.
    pub(crate) fn others_are_open(&self) -> bool {
        self.all.are_there()
    }

    pub(crate) fn close(&mut self) {
        if let State::Open(_) = self.state {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
            self.state = State::Closed;
        }
    }

    fn open(&mut self) -> RedisResult<&mut wire::Connection> {
        match &mut self.state {
            State::Open(connection) => Ok(connection),
            State::Failed(failure) => Err(failure.clone()),
            State::Closed => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.state, State::Open(connection) if connection.is_open())
    }

    pub(crate) fn send_packed_command(&mut self, packed: &[u8]) -> RedisResult<()> {
        if self.greeting.is_empty() {
            return self.open()?.send_packed_command(packed);
        }
        self.greeted = true;
        let both = mem::take(&mut self.greeting).before(packed);
        self.open()?.send_packed_command(&both)
    }

    pub(crate) fn recv_response(&mut self) -> RedisResult<Value> {
        if mem::take(&mut self.greeted) {
            self.open()?.recv_response()?;
        }
        self.open()?.recv_response()
    }

    pub(crate) fn set_write_timeout(&mut self, limit: Option<Duration>) -> RedisResult<()> {
        self.open()?.set_write_timeout(limit)
    }

    pub(crate) fn set_read_timeout(&mut self, limit: Option<Duration>) -> RedisResult<()> {
        self.open()?.set_read_timeout(limit)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
