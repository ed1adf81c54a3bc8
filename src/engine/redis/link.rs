//! A pooled connection's link to Redis: open, or why it is not.
//!
//! r2d2 connects in threads of its own, and responds to a failure by connecting again and again until the
//! waiter has no time left. So a failure counts as a connection too: one without a link, which returns the
//! error to the waiter at once.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, mem};

use redis::{ConnectionLike as _, RedisError, RedisResult, Value};

use crate::engine::redis::wire;

/// The number of open links of one pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenLinks(Arc<AtomicUsize>);

/// What a connection tells the server about its client, for an operator who lists the connections:
/// `CLIENT SETNAME` with the client's name. It is written in front of a connection's first request, so it
/// costs no round trip. The reply is ignored: the server may not have the command, or the user may not be
/// allowed to use it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting(Arc<[u8]>);

impl Greeting {
    /// Empty if there is no name. Redis accepts only ASCII without spaces in a name: `_` stands for the rest.
    pub(crate) fn of(client_name: &str) -> Greeting {
        if client_name.is_empty() {
            return Greeting::default();
        }
        let name: String = client_name.chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect();
        Greeting(redis::cmd("CLIENT").arg("SETNAME").arg(name).get_packed_command().into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the greeting with these requests behind it.
    pub(crate) fn before(&self, requests: &[u8]) -> Vec<u8> {
        [&*self.0, requests].concat()
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
        self.all.0.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn close(&mut self) {
        if let State::Open(_) = self.state {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
            self.state = State::Closed;
        }
    }

    /// Returns the connection, if it is open.
    pub(crate) fn open(&mut self) -> RedisResult<&mut wire::Connection> {
        match &mut self.state {
            State::Open(connection) => Ok(connection),
            State::Failed(failure) => Err(failure.clone()),
            State::Closed => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.state, State::Open(connection) if connection.is_open())
    }

    /// Returns what is to be written now for these requests: before the first ones goes the greeting.
    pub(crate) fn greeted<'p>(&mut self, packed: &'p [u8]) -> Cow<'p, [u8]> {
        if self.greeting.is_empty() {
            return Cow::Borrowed(packed);
        }
        self.greeted = true;
        Cow::Owned(mem::take(&mut self.greeting).before(packed))
    }

    pub(crate) fn recv_response(&mut self) -> RedisResult<Value> {
        if mem::take(&mut self.greeted) {
            self.open()?.recv_response()?;
        }
        self.open()?.recv_response()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
