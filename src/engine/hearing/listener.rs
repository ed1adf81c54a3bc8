//! The grant listener: one thread and one connection per client and server, from the first wait there until
//! the client ends.
//!
//! At a node of a cluster it listens to a channel for each lock that a thread of this client waits for there, or about
//! which it wants messages. The channel carries the lock's hash tag, and is sharded if the server supports that, so a
//! message stays in the shard that grants. When a slot moves away, the server ends the subscriptions to its channels,
//! and the waiters ask the slot's new server at once. A channel that the server refuses affects its lock only: the
//! connection continues to serve the others.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisError, RedisResult, ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::call::close::abandon;
use crate::engine::entries::entry::{LockEntry, owner_number};
use crate::engine::entries::runtime::Shared;
use crate::engine::hearing::messages::{ask_again, deaf, dispatch, hears, missed, tell};
use crate::engine::hearing::notices::Notices;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::life::pause_after;
use crate::engine::redis::refusal::{not_connected, refused};
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::redis::subscriber::{PING_AFTER, Pushed, Subscriber, TICK};
use crate::engine::redis::wire::Connection;
use crate::engine::renewal::successor;
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::names::{channel, fresh_uuid, stem_of};
use crate::observe::serves_holds;

/// How often the listener looks for channels that are no longer needed.
const SWEEP: Duration = Duration::from_secs(5);
/// `twin <mark>`: a client that begins to listen asks whether a copy of its process does already.
const TWIN: &str = "twin";
/// `here <proof>`: the answer of such a copy, which ends the client that asked.
const HERE: &str = "here";
/// `<owner> listen …`: see [`on_listen`](Listener::on_listen).
const LISTEN: &str = "listen ";
/// The pauses between attempts to connect; after connections that ended as soon as they were there, up to a [`TICK`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Starts the listener of this client at this server, unless it runs. Does not wait until it is up: it makes
/// every entry ask again when it is.
pub(crate) fn start(shared: &Arc<Shared>, server: &Arc<Server>) -> Result<(), Error> {
    server.inbox.life.start("rc-inbox", || {
        let listener = Listener {
            shared: Arc::downgrade(shared),
            server: server.clone(),
            channel: shared.channel(),
            notices: Notices::default(),
            mark: String::new(),
            answered: Moment::default(),
        };
        move || listener.run()
    })
}

struct Listener {
    /// Weak: the listener does not keep its client alive.
    shared: Weak<Shared>,
    server: Arc<Server>,
    /// The client's own channel.
    channel: String,
    notices: Notices,
    /// What it asks a copy of this process with; new for each connection.
    mark: String,
    /// When it last answered one.
    answered: Moment,
}

impl Listener {
    fn run(mut self) {
        serves_holds();
        let mut down = None::<Moment>;
        let mut pause = FIRST_PAUSE;
        while self.goes_on() && self.is_needed() {
            let dialled = Moment::now();
            self.mark = self.shared.upgrade().map_or_else(String::new, |shared| fresh_uuid(&shared.identity));
            match self.connect() {
                Ok((connection, info)) => {
                    let missed = down.map(|down| Moment::now().since(down));
                    let mut line = Subscriber::new(connection, self.by_lock());
                    // Before waiters ask again: a message that comes after their requests must be received.
                    let resumed = self.notices.resume(&mut line);
                    self.came_up(dialled, &info, missed);
                    // An error says that the connection has failed: it is dropped.
                    let _ = resumed.and_then(|()| self.listen(&mut line));
                    self.server.inbox.went_down();
                    down = Some(Moment::now());
                    self.at_each(deaf);
                    // Each that comes up makes all waiters ask again.
                    pause = FIRST_PAUSE.max(pause_after(Moment::now().since(dialled), pause, TICK));
                }
                Err(failure) => {
                    pause = if failure.is_final() { LONGEST_PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
                    if let Some(shared) = self.shared.upgrade() {
                        shared.route.lost(&self.server, Moment::now().after(shared.config.command_timeout));
                    }
                    // So that waiters see it.
                    self.server.inbox.failed(failure);
                    self.at_each(hears);
                }
            }
            self.server.inbox.life.sleep(pause);
        }
        self.server.inbox.life.ended();
    }

    /// Returns whether the client still exists and has not stopped its listener.
    fn goes_on(&self) -> bool {
        !self.server.inbox.life.is_stopped() && self.shared.strong_count() > 0
    }

    /// Returns whether this is a cluster, where each lock has a channel of its own and the client's only serves to
    /// wake the listener.
    fn by_lock(&self) -> bool {
        self.server.node.is_some()
    }

    /// Returns whether this server may have any key of the client. If not, its channels are forgotten.
    fn is_needed(&self) -> bool {
        let is_needed = self.shared.upgrade().is_some_and(|shared| shared.route.leads_to(&self.server));
        if !is_needed {
            self.server.inbox.channels.clear();
        }
        is_needed
    }

    /// Calls `act` for each lock of the client that is at this server now.
    fn at_each(&self, act: fn(&Arc<LockEntry>)) {
        if let Some(shared) = self.shared.upgrade() {
            shared.entries_at(&self.server).iter().for_each(act);
        }
    }

    /// Connects, and subscribes to the channel. Returns the connection and what its server says about itself;
    /// its role only if a server has said that it is not the primary. A copy of this process that listens
    /// there already is asked to [answer](Self::answer), and does not see its own question, which has its mark.
    fn connect(&self) -> Result<(Connection, ServerInfo), Failure> {
        let manager = &self.server.manager;
        let mut connection = manager.raw().map_err(not_connected)?;
        let subscribe = redis::cmd("SUBSCRIBE").arg(&self.channel).get_packed_command();
        let doubted = self.server.backend.refused.get() > Moment::BEGINNING;
        let info = if doubted { redis::cmd("INFO").get_packed_command() } else { ServerInfo::request() };
        // In a cluster, the client's other listeners would hear it, too.
        let question = || self.says(&format!("{TWIN} {}", self.mark)).get_packed_command();
        let twin = if self.by_lock() { Vec::new() } else { question() };
        let [info, _, subscribed] =
            connection.ask([info, twin, subscribe], manager.due()).map_err(not_connected)?;
        match subscribed {
            Value::ServerError(e) => Err(not_subscribed(&self.channel, e.into())),
            _ => Ok((connection, ServerInfo::read(&info, Moment::now()))),
        }
    }

    /// Listens from now on. Makes waiters ask for what was announced while nobody listened, on connections that lead to
    /// this server, and wakes threads that wait for the inbox.
    fn came_up(&self, dialled: Moment, info: &ServerInfo, missed: Option<Duration>) {
        let (Some(shared), backend) = (self.shared.upgrade(), &self.server.backend) else { return };
        if info.is_primary == Some(true) && backend.refused.get() > backend.moved.get() {
            backend.moved.put(dialled);
        }
        successor::connected(&shared, &self.server, info);
        // Messages about grants from before may have been missed, also before it listened at all. Threads are told so
        // before they keep a lock because the inbox is up: what they keep then has missed nothing, and stays.
        self.at_each(deaf);
        self.server.inbox.came_up(dialled, info.is_primary == Some(false));
        if let Some(missed) = missed {
            shared.observers.tell_apart(1, move |o| o.reconnected(missed));
        }
        self.at_each(hears);
    }

    /// Receives messages until the client ends, the server has no more slots, or the connection fails.
    fn listen(&mut self, line: &mut Subscriber) -> RedisResult<()> {
        let server = self.server.clone();
        let (mut needed, mut swept, mut pushed) = (Moment::now(), Moment::now(), None);
        // Messages of a former primary do not count.
        while self.goes_on()
            && let Some(shared) = self.shared.upgrade()
            && !server.inbox.is_elsewhere(server.backend.moved.get(), server.backend.refused.get())
        {
            let now = Moment::now();
            if let Some(pushed) = pushed {
                server.known.replied(now);
                self.receive(pushed, &shared, line, now)?;
            }
            self.notices.expire(line, now)?;
            if SWEEP < now.since(swept) {
                self.sweep(line, &shared, now)?;
                swept = now;
            }
            if TICK < now.since(needed) {
                if !self.is_needed() {
                    break;
                }
                needed = now;
            }
            if self.by_lock() {
                let requested = server.inbox.channels.take_requested();
                line.ask(requested.iter().map(|stem| channel(stem, &shared.uuid)).collect())?;
            }
            // Not held while the thread waits for a message: it would keep a client alive that has no other
            // user.
            drop(shared);
            pushed = line.next()?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        pushed: Pushed,
        shared: &Shared,
        line: &mut Subscriber,
        now: Moment,
    ) -> RedisResult<()> {
        let channels = &self.server.inbox.channels;
        match pushed {
            Pushed::Message { channel, text } => {
                if let Some(entries) = self.notices.on_message(&channel) {
                    entries.iter().for_each(ask_again);
                    return Ok(());
                }
                match text.split_once(' ').unwrap_or_default() {
                    (TWIN, request) if request != self.mark && TICK < now.since(self.answered) => {
                        self.answer(shared, request);
                        self.answered = now;
                    }
                    (HERE, proof) if proof == shared.proof(&self.mark) => abandon(shared),
                    (owner, what) if what.starts_with(LISTEN) => {
                        self.on_listen(shared, owner, &what[LISTEN.len()..], line)?;
                    }
                    (owner, what) => dispatch(shared, owner, what, now),
                }
            }
            // Something may have been announced before on the channel of another program.
            Pushed::Confirmed(channel) => match self.notices.on_message(&channel) {
                Some(entries) => entries.iter().for_each(ask_again),
                None => {
                    let owners = channels.confirmed(stem(shared, &channel), |new| tell(shared, new, deaf));
                    tell(shared, &owners, hears);
                }
            },
            // The waiters' requests go to the server that has the slot now, and they listen there.
            Pushed::Ended(channel) => missed(shared, &channels.ended(stem(shared, &channel))),
            Pushed::Refused(channel, why) => self.refused(shared, &channel, why),
            Pushed::Nothing => {}
        }
        Ok(())
    }

    /// The server has refused this channel. If its slot is elsewhere, the waiters ask there. If the client
    /// may not listen to it, the waiters of this lock get an error. Otherwise they want the channel again
    /// soon.
    fn refused(&self, shared: &Shared, channel: &str, why: RedisError) {
        let (channels, stem) = (&self.server.inbox.channels, stem(shared, channel));
        let failure = not_subscribed(channel, why);
        if failure.is_final() {
            return missed(shared, &channels.denied(stem, failure));
        }
        let owners = channels.refused(stem);
        if shared.route.learn(&self.server, &failure) {
            missed(shared, &owners);
        }
    }

    /// Unsubscribes from the channels that are no longer needed.
    fn sweep(&self, line: &mut Subscriber, shared: &Shared, now: Moment) -> RedisResult<()> {
        let needs = |owner| {
            let entry = shared.entries.lock().of_owner(owner);
            entry.is_some_and(|entry| entry.core.lock().lock_state.is_in_use())
        };
        for stem in self.server.inbox.channels.take_idle(now, needs) {
            line.give_up(&channel(&stem, &shared.uuid))?;
        }
        Ok(())
    }

    /// Answers a client that has begun to listen to the same channel. If it is that of a copy of this process,
    /// or this is the copy, the proof makes it end. Whoever else asks can do nothing with it.
    fn answer(&self, shared: &Shared, request: &str) {
        let answer = self.says(&format!("{HERE} {}", shared.proof(request)));
        let _ = self.server.backend.command(&answer, Moment::now().after(PING_AFTER));
    }

    /// A request to publish this on the client's own channel.
    fn says(&self, text: &str) -> redis::Cmd {
        redis::cmd("PUBLISH").arg(&self.channel).arg(text).clone()
    }

    /// Handles `<uuid>:<n> listen 0 <ms> <channel>`: for that many milliseconds, at most a waiter timeout, the
    /// waiters of the lock ask again at each message on that channel.
    fn on_listen(
        &mut self,
        shared: &Shared,
        owner: &str,
        terms: &str,
        line: &mut Subscriber,
    ) -> RedisResult<()> {
        let mut words = terms.splitn(3, ' ').skip(1);
        let ms = words.next().and_then(|ms| ms.parse().ok());
        let owner = owner.rsplit(':').next().and_then(owner_number);
        let (Some(ms), Some(channel), Some(owner)) = (ms, words.next(), owner) else { return Ok(()) };
        let entry = shared.entries.lock().of_owner(owner);
        let until = Moment::now().after(Duration::from_millis(ms).min(shared.config.waiter_timeout));
        let entry = entry.filter(|entry| entry.core.lock().lock_state.knows(owner));
        entry.map_or(Ok(()), |entry| self.notices.listen(line, &entry, channel, until))
    }
}

/// Returns the stem of the lock that this channel is for.
fn stem<'a>(shared: &Shared, channel: &'a str) -> &'a str {
    stem_of(channel, &shared.uuid).unwrap_or_default()
}

/// Returns the failure of a client that cannot listen to this channel.
fn not_subscribed(channel: &str, e: RedisError) -> Failure {
    if e.kind() != redis::ErrorKind::Server(ServerErrorKind::NoPerm) {
        return refused(e);
    }
    let error =
        ErrorKind::Unavailable.because(format!("waiting requires permission to subscribe to {channel}"));
    Failure::Never(error.caused_by(e).permanent())
}
