//! A connection of a client's pool, and its factory. What is sent on it is not its business, only by when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, Value};

use super::failure::Failure;
use super::greeting::Greeting;
use super::link::{Link, OpenLinks};
use super::refusal::{no_primary, unanswered};
use super::sentinels::Sentinels;
use super::server_info::ServerInfo;
use super::slots::Node;
use super::wire;
use crate::clock::Moment;
use crate::settings::Config;

/// Where new connections lead.
#[derive(Clone, Debug)]
pub(crate) enum Destination {
    /// To an address.
    At(Box<redis::Client>),
    /// To the primary, wherever the sentinels say that it is.
    Primary(Arc<Sentinels>),
}

/// Makes the connections of a client's pool.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionManager {
    leads_to: Destination,
    connect_timeout: Duration,
    command_timeout: Duration,
    /// What each connection says first.
    pub(crate) greeting: Greeting,
    /// Those of the pool.
    links: OpenLinks,
}

/// A connection of a client's pool.
pub(crate) struct Connection {
    pub(crate) link: Link,
    /// Any I/O error leaves it out of step, timeouts included: the reply may come yet, and be taken for the
    /// next request's.
    pub(crate) broken: bool,
    /// It must not go back to the pool. A broken one does: a waiter there is woken by what comes back, and
    /// has another made.
    pub(crate) discarded: bool,
    pub(crate) born: Moment,
    /// Before it was made: where it leads is not known from later.
    dialled: Moment,
    /// The read timeout that is set, to set it only when it changes.
    pub(crate) limit: Duration,
    /// Whether Redis has let us begin a transaction on it.
    pub(crate) transacts: bool,
    /// What the server said about itself, once it was asked.
    pub(crate) server: Option<Arc<ServerInfo>>,
}

/// The connection that a request went by.
#[derive(Clone, Copy)]
pub(crate) struct By {
    /// Before the request was sent.
    pub(crate) asked: Moment,
    /// When the connection was made.
    pub(crate) born: Moment,
    /// Before it was made.
    pub(crate) dialled: Moment,
    /// How long the reply was waited for.
    pub(crate) limit: Duration,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl ConnectionManager {
    pub(crate) fn new(leads_to: Destination, config: &Config) -> Self {
        ConnectionManager {
            leads_to,
            connect_timeout: config.connect_timeout,
            command_timeout: config.command_timeout,
            greeting: Greeting::of(&config.client_name),
            links: OpenLinks::default(),
        }
    }

    /// Whether both lead to the same data, as far as their addresses tell.
    pub(crate) fn leads_where(&self, other: &ConnectionManager) -> bool {
        match (&self.leads_to, &other.leads_to) {
            (Destination::At(one), Destination::At(other)) => {
                let (one, other) = (one.get_connection_info(), other.get_connection_info());
                one.addr() == other.addr() && one.redis_settings().db() == other.redis_settings().db()
            }
            (Destination::Primary(one), Destination::Primary(other)) => one.lead_where(other),
            _ => false,
        }
    }

    /// The same to a node of the same cluster.
    pub(crate) fn at(&self, node: &Node) -> Result<ConnectionManager, RedisError> {
        let Destination::At(client) = &self.leads_to else {
            return Err((redis::ErrorKind::InvalidClientConfig, "a Redis Cluster has no sentinels").into());
        };
        let info = client.get_connection_info();
        let Node { host, port } = node.clone();
        let addr = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (insecure, tls_params) = (*insecure, tls_params.clone());
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = redis::Client::open(info.clone().set_addr(addr))?;
        let leads_to = Destination::At(Box::new(client));
        Ok(ConnectionManager { leads_to, links: OpenLinks::default(), ..self.clone() })
    }

    /// Where it leads to.
    pub(crate) fn address(&self) -> String {
        match &self.leads_to {
            Destination::At(client) => client.get_connection_info().addr().to_string(),
            Destination::Primary(sentinels) => sentinels.address(),
        }
    }

    /// Where it leads to now, and how to log in there. Blocks for the connect timeout at most if sentinels are to be
    /// asked.
    pub(crate) fn info(&self) -> Result<ConnectionInfo, RedisError> {
        match &self.leads_to {
            Destination::At(client) => Ok(client.get_connection_info().clone()),
            Destination::Primary(sentinels) => sentinels.primary(self.connect_timeout),
        }
    }

    /// Those that say where it leads to, if they do.
    pub(crate) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.leads_to {
            Destination::At(_) => None,
            Destination::Primary(sentinels) => Some(sentinels),
        }
    }

    /// A connection of its own, for a thread that does not share one; its [greeting](Self::greeting) is to be said.
    pub(crate) fn raw(&self) -> Result<wire::Connection, RedisError> {
        let connection = match &self.leads_to {
            Destination::At(client) => wire::connect(client, self.connect_timeout)?,
            Destination::Primary(sentinels) => sentinels.connect(self.connect_timeout)?,
        };
        connection.set_read_timeout(Some(self.command_timeout))?;
        connection.set_write_timeout(Some(self.command_timeout))?;
        Ok(connection)
    }

    /// The same, on which the server tells messages apart from answers (RESP3).
    pub(crate) fn pushing(&self) -> Result<wire::Connection, RedisError> {
        let Destination::At(client) = &self.leads_to else { return self.raw() };
        let info = client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.clone().set_redis_settings(settings))?;
        ConnectionManager { leads_to: Destination::At(Box::new(client)), ..self.clone() }.raw()
    }

    /// A connection outside the pool.
    pub(crate) fn apart(&self) -> Result<Connection, RedisError> {
        let dialled = Moment::now();
        Ok(self.over(Link::new(Ok(self.raw()?), self.greeting.clone(), OpenLinks::default()), dialled))
    }

    fn over(&self, link: Link, dialled: Moment) -> Connection {
        let (born, limit) = (Moment::now(), self.command_timeout);
        let (broken, discarded) = (false, false);
        Connection { link, broken, discarded, born, dialled, limit, transacts: false, server: None }
    }
}

impl r2d2::ManageConnection for ConnectionManager {
    /// In a box: on its way from the pool to a request, and back, it is moved a dozen times.
    type Connection = Box<Connection>;
    type Error = RedisError;

    /// Whatever the result: a waiter for it learns of a failure at once.
    fn connect(&self) -> Result<Box<Connection>, RedisError> {
        let dialled = Moment::now();
        Ok(Box::new(self.over(Link::new(self.raw(), self.greeting.clone(), self.links.clone()), dialled)))
    }

    fn is_valid(&self, connection: &mut Box<Connection>) -> Result<(), RedisError> {
        let ping = redis::cmd("PING").get_packed_command();
        connection.link.request(&ping)?.extract_error().map(drop)
    }

    fn has_broken(&self, connection: &mut Box<Connection>) -> bool {
        if connection.broken || !connection.link.is_open() {
            connection.link.close();
        }
        connection.discarded
    }
}

impl Connection {
    /// Writes requests whose replies are [read](Connection::read) later.
    pub(crate) fn write(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        let sent = self.link.send_packed_command(packed);
        self.broken |= sent.is_err();
        sent
    }

    /// The next reply, waited for until the [limit](Connection::limit_to). If it does not come, the
    /// connection is broken.
    pub(crate) fn read(&mut self) -> Result<Value, RedisError> {
        let answer = self.link.recv_response();
        self.broken |= answer.is_err();
        answer
    }

    /// Whether it may lead to the primary, if another server was found to be it at `moved`.
    pub(crate) fn is_since(&self, moved: Moment) -> bool {
        self.dialled >= moved
    }

    /// What a request that is sent at `asked` goes by.
    pub(crate) fn by(&self, asked: Moment) -> By {
        By { asked, born: self.born, dialled: self.dialled, limit: self.limit }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// There was no reply in time.
    pub(crate) fn unanswered(&self, e: RedisError) -> Failure {
        Failure::Unanswered(unanswered(e, self.limit))
    }

    /// How long a write may take.
    pub(crate) fn limit_writes_to(&mut self, limit: Duration) -> Result<(), RedisError> {
        self.link.set_write_timeout(Some(limit))
    }

    /// Sends requests in one write and reads their replies one by one until `limit`: the library's own
    /// pipeline would apply the timeout to each of them. An error leaves the connection broken.
    pub(crate) fn exchange(&mut self, requests: &[Vec<u8>], limit: Moment) -> Result<Vec<Value>, RedisError> {
        self.limit_to(limit);
        let sent = self.link.send_packed_command(&requests.concat());
        let answers = sent.and_then(|()| {
            let answer = |_| {
                self.limit_to(limit);
                self.link.recv_response()
            };
            requests.iter().map(answer).collect()
        });
        self.broken |= answers.is_err();
        answers
    }

    /// A reply may say that the server cannot serve us: perhaps a new connection leads to one that can.
    pub(crate) fn check_role(&mut self, answer: &Value) {
        self.broken |= no_primary(answer).is_some();
    }

    /// The read timeout of the next request. Setting it is a system call, so it is set only if the usual one
    /// would be too long. Returns what the clock said.
    pub(crate) fn limit_to(&mut self, limit: Moment) -> Moment {
        const COARSE: Duration = Duration::from_millis(1);
        let now = Moment::now();
        let left = limit.since(now).max(COARSE);
        if left + COARSE < self.limit || self.limit + COARSE < left {
            self.broken |= self.link.set_read_timeout(Some(left)).is_err();
            self.limit = left;
        }
        now
    }
}
