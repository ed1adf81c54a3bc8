//! A connection of a client's pool, and its factory. It knows by when a reply is due, not what is sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ConnectionInfo, RedisError, RedisResult, Value};

use crate::clock::Moment;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::refusal::{is_unknown_script, no_primary};
use crate::engine::redis::sentinels::SentinelClient;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::redis::slots::Node;
use crate::engine::redis::wire;
use crate::settings::Config;

/// Makes the connections of a client's pool.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionManager {
    /// Where they lead; if there are sentinels, only how to log in at the primary, wherever it is.
    server: ConnectionInfo,
    /// Those that say where the primary is.
    pub(crate) sentinels: Option<Arc<SentinelClient>>,
    /// For the server, not for its sentinels.
    credentials: Credentials,
    connect_timeout: Duration,
    pub(super) command_timeout: Duration,
    /// The number of the pool's open links.
    links: Arc<AtomicUsize>,
}

/// A connection of a client's pool: open, closed, or why it never was open. (r2d2 connects in threads of its own, and
/// responds to a failure by connecting again and again until the waiter has no time left. So a failure counts as a
/// connection too, which returns the error to the waiter at once.)
pub(crate) struct Connection {
    /// Without an error, it was closed.
    pub(super) open: Result<wire::Connection, Option<RedisError>>,
    /// How many of its pool are open.
    pub(super) links: Arc<AtomicUsize>,
    /// Set by any I/O error, timeouts included: the connection is out of step, since a late reply would be
    /// taken for that of the next request.
    pub(crate) broken: bool,
    /// Its server said that it is not the primary: a new connection may lead there.
    pub(crate) demoted: bool,
    /// It must not return to the pool. A broken one does: its return wakes a waiter there, which then has
    /// another one made.
    pub(crate) discarded: bool,
    pub(crate) born: Moment,
    /// Just before it was dialled: where it leads was decided after that.
    dialled: Moment,
    /// When something was last to be sent on it, or a reply to be read.
    pub(super) used: Moment,
    /// Whether Redis has let us begin a transaction on it.
    pub(crate) transacts: bool,
    /// To what its next replies are that are no command's.
    pub(crate) first: First,
    /// What the server said about itself, once it was asked.
    pub(crate) server: Option<Arc<ServerInfo>>,
    /// The reply that comes before all others.
    pub(crate) unread: Option<Unread>,
    /// The scripts that Redis was given on it in full.
    pub(crate) given: Vec<String>,
}

/// A reply that its request did not wait for. Whoever uses the connection next reads it, before a reply of its
/// own; if nobody can, `on_reply` gets an error.
pub(crate) struct Unread {
    /// What the request was about: the next one about it goes behind it.
    pub(crate) about: u64,
    /// Until when the reply may take.
    pub(crate) limit: Moment,
    pub(crate) on_reply: Option<OnReply>,
}

type OnReply = Box<dyn FnOnce(Result<Value, RedisError>) + Send>;

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(on_reply) = self.on_reply.take() {
            on_reply(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()));
        }
    }
}

/// What goes before a command on a connection on which it has not been sent yet: so many commands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum First {
    #[default]
    Nothing,
    /// The question which server it is.
    Server,
    /// A transaction, to see whether Redis permits any.
    Transaction,
}

/// When a request was sent, and when its connection was made.
#[derive(Clone, Copy)]
pub(crate) struct By {
    /// Before the request was sent.
    pub(crate) sent: Moment,
    /// When the connection was made.
    pub(crate) born: Moment,
    /// Just before it was dialled.
    pub(crate) dialled: Moment,
}

shows!(Connection as "Connection", |it| "broken": it.broken);

impl ConnectionManager {
    pub(crate) fn new(
        server: ConnectionInfo,
        sentinels: Option<Arc<SentinelClient>>,
        credentials: Credentials,
        config: &Config,
    ) -> Self {
        ConnectionManager {
            server,
            sentinels,
            credentials,
            connect_timeout: config.connect_timeout,
            command_timeout: config.command_timeout,
            links: Arc::default(),
        }
    }

    /// Whether both lead to the same data, as far as their addresses tell.
    pub(crate) fn leads_where(&self, other: &ConnectionManager) -> bool {
        let same = match (&self.sentinels, &other.sentinels) {
            (None, None) => self.server.addr() == other.server.addr(),
            (Some(one), Some(other)) => one.lead_where(other),
            _ => false,
        };
        same && self.db() == other.db()
    }

    /// The number of its database.
    pub(crate) fn db(&self) -> i64 {
        self.server.redis_settings().db()
    }

    /// Returns a manager for another node of the same cluster.
    pub(crate) fn at(&self, node: &Node) -> ConnectionManager {
        ConnectionManager { server: node.like(&self.server), links: Arc::default(), ..self.clone() }
    }

    /// Returns where its connections lead.
    pub(crate) fn address(&self) -> String {
        self.sentinels.as_ref().map_or_else(|| self.server.addr().to_string(), |it| it.address())
    }

    /// Returns where its connections lead now, and how to log in there. Blocks for the connect timeout at
    /// most if sentinels have to be asked, and for as long as the provider of the credentials does.
    pub(crate) fn info(&self) -> Result<ConnectionInfo, RedisError> {
        let limit = self.connect_timeout;
        let Some(sentinels) = &self.sentinels else { return self.credentials.given_to(&self.server, limit) };
        let (_, primary) = sentinels.find((&self.server, &self.credentials), limit)?;
        self.credentials.given_to(&primary.like(&self.server), limit)
    }

    /// By when a reply to what is sent now is due.
    pub(crate) fn due(&self) -> Moment {
        Moment::now().after(self.command_timeout)
    }

    /// Opens a connection for a thread that does not share one.
    pub(crate) fn raw(&self) -> Result<wire::Connection, RedisError> {
        let (server, limit) = (&self.server, self.connect_timeout);
        let mut connection = match &self.sentinels {
            None => wire::connect(server, &self.credentials, limit)?,
            Some(sentinels) => sentinels.find((server, &self.credentials), limit)?.0,
        };
        connection.set_write_timeout(Some(self.command_timeout))?;
        Ok(connection)
    }

    /// Opens a connection outside the pool.
    pub(crate) fn apart(&self) -> Result<Connection, RedisError> {
        let mut connection = self.made(Arc::default());
        connection.opened()?;
        Ok(connection)
    }

    /// One of these `links`.
    fn made(&self, links: Arc<AtomicUsize>) -> Connection {
        let (dialled, made) = (Moment::now(), self.raw());
        links.fetch_add(usize::from(made.is_ok()), Ordering::Relaxed);
        let born = Moment::now();
        Connection {
            open: made.map_err(Some),
            links,
            broken: false,
            demoted: false,
            discarded: false,
            born,
            dialled,
            used: born,
            transacts: false,
            first: First::default(),
            server: None,
            unread: None,
            given: Vec::new(),
        }
    }
}

impl r2d2::ManageConnection for ConnectionManager {
    /// Boxed, as the pool moves it, too.
    type Connection = Box<Connection>;
    type Error = RedisError;

    /// Always returns `Ok`, so that a waiter learns of a failure at once: see [`Connection`].
    fn connect(&self) -> Result<Box<Connection>, RedisError> {
        Ok(Box::new(self.made(self.links.clone())))
    }

    /// The pool does not ask: a broken connection is replaced, and its request sent again.
    fn is_valid(&self, _: &mut Box<Connection>) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Box<Connection>) -> bool {
        if !connection.is_sound() {
            connection.unread = None;
            connection.close();
        }
        connection.discarded
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

impl Connection {
    fn close(&mut self) {
        if self.open.is_ok() {
            self.open = Err(None);
            self.links.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the next request may have it. It owes no reply.
    pub(super) fn is_sound(&self) -> bool {
        self.open.is_ok() && self.unread.is_none() && !(self.broken || self.demoted || self.discarded)
    }

    /// Returns its socket, if it is open.
    pub(crate) fn opened(&mut self) -> RedisResult<&mut wire::Connection> {
        let closed = || io::Error::from(io::ErrorKind::NotConnected).into();
        self.open.as_mut().map_err(|failure| failure.clone().unwrap_or_else(closed))
    }

    /// Writes requests whose replies are [read](Connection::read) later.
    pub(crate) fn write(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        let sent = self.opened().and_then(|socket| socket.send_packed_command(packed));
        self.broken |= sent.is_err();
        sent
    }

    /// Reads the next reply, waiting until `limit`. If there is none by then, the connection is broken.
    pub(crate) fn read(&mut self, limit: Moment) -> Result<Value, RedisError> {
        self.catch_up(limit)?;
        self.read_next(limit)
    }

    /// Reads the next `n` replies.
    pub(crate) fn read_all(&mut self, n: usize, limit: Moment) -> Result<Vec<Value>, RedisError> {
        (0..n).map(|_| self.read(limit)).collect()
    }

    /// Reads the reply that was left unread, if there is one, and waits for it until `limit`.
    pub(crate) fn catch_up(&mut self, limit: Moment) -> Result<(), RedisError> {
        let Some(mut unread) = self.unread.take() else { return Ok(()) };
        let reply = self.read_next(limit);
        let failed = reply.as_ref().err().cloned();
        if let Some(on_reply) = unread.on_reply.take() {
            on_reply(reply);
        }
        failed.map_or(Ok(()), Err)
    }

    fn read_next(&mut self, limit: Moment) -> Result<Value, RedisError> {
        let now = Moment::now();
        self.used = now;
        let answer = self.opened().and_then(|socket| socket.recv_response(now, limit));
        self.broken |= answer.is_err();
        if answer.as_ref().is_ok_and(is_unknown_script) {
            self.given.clear();
        }
        self.demoted |= answer.as_ref().is_ok_and(|value| no_primary(value).is_some());
        answer
    }

    /// What must go before a command that wants `first`.
    pub(crate) fn lacks(&self, first: First) -> First {
        match first {
            First::Server if self.server.is_none() => first,
            First::Transaction if !self.transacts => first,
            _ => First::Nothing,
        }
    }

    /// Asks the server which one it is, and waits until `limit`.
    pub(crate) fn identify(&mut self, limit: Moment) -> Result<ServerInfo, RedisError> {
        self.write(&ServerInfo::request())?;
        Ok(ServerInfo::read(&self.read(limit)?, Moment::now()))
    }

    /// Whether it may lead to the primary, given that this was found to be another server at `moved`.
    pub(crate) fn is_since(&self, moved: Moment) -> bool {
        self.dialled >= moved
    }

    /// Describes a request that is sent on it now.
    pub(crate) fn by(&self) -> By {
        By { sent: Moment::now(), born: self.born, dialled: self.dialled }
    }
}
