//! The grant listener: one thread and one connection per client and server, from the first wait there until
//! the client ends. At a node of a cluster it [listens to the locks](crate::engine::hearing::listener_by_lock) one by one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Msg, RedisError, RedisResult, ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::call::close::abandon;
use crate::engine::entries::entry::{LockEntry, owner_number};
use crate::engine::entries::runtime::Shared;
use crate::engine::hearing::inbox::Inbox;
use crate::engine::hearing::messages::{ask_again, dispatch, hears};
use crate::engine::hearing::notices::{Notices, Subscribes};
use crate::engine::operations::effects::report;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::{not_connected, refused};
use crate::engine::redis::server_info::{Role, ServerInfo};
use crate::engine::redis::wire::Connection;
use crate::engine::renewal::successor;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::state::lock_state::LockState;
use crate::error::{Error, ErrorKind};
use crate::names::fresh_uuid;
use crate::observe::serves_holds;

/// How long the connection may be silent before it is pinged, and how long the reply may take: a dead peer is
/// detected within twice this time.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(1);
/// How often a silent listener checks whether it should end.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// `twin <mark>`: a client that begins to listen asks whether a copy of its process does already.
const TWIN: &str = "twin";
/// `here <proof>`: the answer of such a copy, which ends the client that asked.
const HERE: &str = "here";
/// The pauses between attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Starts the listener of this client at this server, unless it runs. Does not wait until it is up: it makes
/// every entry ask again when it is.
pub(crate) fn start(shared: &Arc<Shared>, server: &Arc<Server>) -> Result<(), Error> {
    server.inbox.life.start("rc-inbox", || {
        let listener = Listener {
            shared: Arc::downgrade(shared),
            server: Arc::downgrade(server),
            inbox: server.inbox.clone(),
            manager: server.manager.clone(),
            channel: format!("{}{}", shared.inbox_prefix, shared.uuid),
            by_lock: matches!(shared.route, Route::Cluster(_)),
        };
        move || listener.run()
    })
}

pub(crate) struct Listener {
    /// Weak: the listener does not keep its client alive.
    shared: Weak<Shared>,
    server: Weak<Server>,
    pub(crate) inbox: Arc<Inbox>,
    manager: ConnectionManager,
    /// The client's own channel.
    pub(crate) channel: String,
    /// Whether this is a cluster, where each lock has a channel of its own and the client's only serves to
    /// wake the listener.
    by_lock: bool,
}

impl Listener {
    fn run(self) {
        serves_holds();
        let mut down = Moment::now();
        let mut first = true;
        let mut pause = FIRST_PAUSE;
        let mut notices = Notices::default();
        while self.goes_on() && self.is_needed() {
            let dialled = Moment::now();
            let mark = self.shared.upgrade().map_or_else(String::new, |shared| fresh_uuid(&shared.identity));
            match self.connect(&mark) {
                Ok((connection, info, role)) => {
                    let missed = (!first).then(|| Moment::now().since(down));
                    let came_up = || {
                        self.inbox.came_up(dialled, role == Some(Role::Replica));
                        if let Some((shared, at)) = self.client() {
                            if role == Some(Role::Primary) && at.backend.refused() > Some(at.backend.moved())
                            {
                                at.backend.moves(dialled);
                            }
                            successor::connected(&shared, &at, &info);
                        }
                        // Only now, so that waiters ask on connections that lead to this server.
                        self.came_up(missed);
                    };
                    first = false;
                    pause = FIRST_PAUSE;
                    match self.by_lock {
                        false => self.listen(connection, &mark, &mut notices, came_up),
                        true => self.listen_by_lock(connection, &mut notices, came_up),
                    }
                    self.inbox.went_down();
                    down = Moment::now();
                    self.is_deaf();
                }
                Err(failure) => {
                    let permanent = failure.is_final();
                    if let Some((shared, server)) = self.client() {
                        shared.route.lost(&server, Moment::now().after(shared.config.command_timeout));
                    }
                    // So that waiters see it.
                    self.inbox.failed(failure);
                    self.came_up(None);
                    pause = if permanent { LONGEST_PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
                    self.inbox.life.sleep(pause);
                }
            }
        }
        self.inbox.life.ended();
    }

    /// Returns whether the client still exists and has not stopped its listener.
    pub(crate) fn goes_on(&self) -> bool {
        !self.inbox.life.is_stopped() && self.shared.strong_count() > 0
    }

    /// Returns whether this server may have any key of the client. If not, its channels are forgotten.
    pub(crate) fn is_needed(&self) -> bool {
        let is_needed = self.client().is_some_and(|(shared, server)| shared.route.leads_to(&server));
        if !is_needed {
            self.inbox.channels.clear();
        }
        is_needed
    }

    /// Returns the client and the server, while they exist.
    pub(crate) fn client(&self) -> Option<(Arc<Shared>, Arc<Server>)> {
        Some((self.shared.upgrade()?, self.server.upgrade()?))
    }

    /// Returns whether the listener is connected to another server than the one that has the locks.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.server
            .upgrade()
            .is_some_and(|server| self.inbox.is_elsewhere(server.backend.moved(), server.backend.refused()))
    }

    /// Connects, and subscribes to the channel. Returns the connection and what its server says about itself;
    /// its role only if a server has said that it is not the primary. A copy of this process that listens
    /// there already is asked to [answer](Self::answer), and does not see its own question, which has this mark.
    pub(super) fn connect(&self, mark: &str) -> Result<(Connection, ServerInfo, Option<Role>), Failure> {
        let connection = if self.by_lock { self.manager.pushing() } else { self.manager.raw() };
        let mut connection = connection.map_err(not_connected)?;
        let subscribe = redis::cmd("SUBSCRIBE").arg(&self.channel).get_packed_command();
        let doubted = self.server.upgrade().is_some_and(|server| server.backend.refused().is_some());
        let role = if doubted { Role::request() } else { Vec::new() };
        // In a cluster, the client's other listeners would hear it, too.
        let twin = match self.by_lock {
            false => self.says(&format!("{TWIN} {mark}")).get_packed_command(),
            true => Vec::new(),
        };
        let all = [ServerInfo::request(), role, twin, subscribe];
        let [server, role, _, subscribed] = connection.ask(all).map_err(not_connected)?;
        match subscribed {
            Value::ServerError(e) => Err(not_subscribed(&self.channel, e.into())),
            _ => Ok((connection, ServerInfo::read(&server, Moment::now()), Role::read(&role))),
        }
    }

    /// Makes waiters ask for what was announced while nobody listened, and wakes threads that wait for the
    /// inbox.
    fn came_up(&self, missed: Option<Duration>) {
        let Some((shared, server)) = self.client() else { return };
        if let Some(missed) = missed {
            shared.observers.tell_apart(1, move |o| o.reconnected(missed));
        }
        // Messages about grants from before may have been missed, too, also before it listened at all.
        self.is_deaf();
        for_all(&shared, &server, hears);
    }

    /// Gives back kept grants: a message that another caller wants one would not be received.
    fn is_deaf(&self) {
        if let Some((shared, server)) = self.client() {
            for_all(&shared, &server, |entry| report(entry, LockState::deaf));
        }
    }

    /// Receives messages until the client ends, or an error says that the connection has failed.
    fn listen(&self, mut connection: Connection, mark: &str, notices: &mut Notices, came_up: impl FnOnce()) {
        // Before waiters ask again: a message that comes after their requests must be received.
        let resumed = notices.resume(&mut connection);
        came_up();
        let _ = resumed.and_then(|()| self.receive(&mut connection, mark, notices));
    }

    fn receive(&self, pubsub: &mut Connection, mark: &str, notices: &mut Notices) -> RedisResult<()> {
        let mut latest = Moment::now();
        let mut needed = latest;
        let mut answered = Moment::default();
        while self.goes_on() && !self.is_elsewhere() {
            if TICK < Moment::now().since(needed) {
                if !self.is_needed() {
                    return Ok(());
                }
                needed = Moment::now();
            }
            let before = latest;
            let message = heard(pubsub, &mut latest)?;
            // Messages of a former primary no longer count.
            if self.is_elsewhere() {
                return Ok(());
            }
            (before < latest).then(|| self.hears());
            if let Some(message) = message {
                if let Some(entries) = notices.on_message(message.get_channel_name()) {
                    entries.iter().for_each(ask_again);
                } else if let Ok(text) = message.get_payload::<String>()
                    && !self.on_listen(&text, pubsub, notices)?
                    && let Some(shared) = self.shared.upgrade()
                {
                    match text.split_once(' ') {
                        Some((TWIN, request)) if request != mark && TICK < latest.since(answered) => {
                            self.answer(&shared, request);
                            answered = latest;
                        }
                        Some((HERE, proof)) if proof == shared.proof(mark) => abandon(&shared),
                        _ => dispatch(&shared, &text),
                    }
                }
            }
            notices.expire(pubsub, Moment::now())?;
        }
        Ok(())
    }

    /// Answers a client that has begun to listen to the same channel. If it is that of a copy of this process,
    /// or this is the copy, the proof makes it end. Whoever else asks can do nothing with it.
    fn answer(&self, shared: &Shared, request: &str) {
        let answer = self.says(&format!("{HERE} {}", shared.proof(request)));
        if let Some(server) = self.server.upgrade() {
            let _ = server.backend.command(&answer, Moment::now().after(PING_AFTER));
        }
    }

    /// A request to publish this on the client's own channel.
    fn says(&self, text: &str) -> redis::Cmd {
        redis::cmd("PUBLISH").arg(&self.channel).arg(text).clone()
    }

    /// Records that the server has just said something. Returns when.
    pub(crate) fn hears(&self) -> Moment {
        let now = Moment::now();
        if let Some(server) = self.server.upgrade() {
            server.known.replied(now);
        }
        now
    }

    /// Handles `<uuid>:<n> listen 0 <ms> <channel>`: for that many milliseconds, at most a waiter timeout, the
    /// waiters of the lock ask again at each message on that channel. Returns whether it was such a message.
    pub(crate) fn on_listen(
        &self,
        text: &str,
        pubsub: &mut impl Subscribes,
        notices: &mut Notices,
    ) -> RedisResult<bool> {
        let request =
            text.split_once(' ').and_then(|(owner, rest)| Some((owner, rest.strip_prefix("listen ")?)));
        let Some((owner, rest)) = request else { return Ok(false) };
        let mut words = rest.splitn(3, ' ');
        let owner = owner.rsplit(':').next().and_then(owner_number);
        let (Some(ms), Some(channel)) = (words.nth(1).and_then(|ms| ms.parse().ok()), words.next()) else {
            return Ok(true);
        };
        let (Some(shared), Some(owner)) = (self.shared.upgrade(), owner) else { return Ok(true) };
        let entry = shared.entries.lock().of_owner(owner);
        let until = Moment::now().after(Duration::from_millis(ms).min(shared.config.waiter_timeout));
        if let Some(entry) = entry
            && entry.core.lock().lock_state.knows(owner)
            && notices.listen(pubsub, &entry, channel, until)?
        {
            // Something may have been announced there before.
            ask_again(&entry);
        }
        Ok(true)
    }
}

/// Returns the next message; `None` after a moment without one. A server that has said nothing since `latest`, for long,
/// is pinged: without a reply the connection is out of step, and must be closed.
pub(crate) fn heard(connection: &mut Connection, latest: &mut Moment) -> RedisResult<Option<Msg>> {
    connection.set_read_timeout(Some(TICK))?;
    let message = match connection.get_message() {
        Err(e) if e.is_timeout() && Moment::now().since(*latest) < PING_AFTER => return Ok(None),
        Err(e) if e.is_timeout() => {
            connection.set_read_timeout(Some(PING_AFTER))?;
            connection.say(&redis::cmd("PING"))?;
            None
        }
        message => Some(message?),
    };
    *latest = Moment::now();
    Ok(message)
}

/// Returns the failure of a client that cannot listen to this channel.
pub(crate) fn not_subscribed(channel: &str, e: RedisError) -> Failure {
    if e.kind() != redis::ErrorKind::Server(ServerErrorKind::NoPerm) {
        return refused(e);
    }
    let error =
        ErrorKind::Unavailable.because(format!("waiting requires permission to subscribe to {channel}"));
    Failure::Never(error.caused_by(e).permanent())
}

/// Calls `act` for all locks of this server.
fn for_all(shared: &Arc<Shared>, server: &Arc<Server>, act: fn(&Arc<LockEntry>)) {
    // Not in the head of the loop: that would keep the table locked for all of it.
    let entries = shared.entries.lock().all();
    entries.iter().filter(|entry| Arc::ptr_eq(entry.server(), server)).for_each(act);
}
