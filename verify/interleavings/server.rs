//! The server of an execution: the Redis in memory of `verify/simulation/`, which runs the deployed scripts, and what may
//! go wrong on the way to it.
//!
//! A request is one step, as in Redis, and before and after it other threads may run. A test says beforehand
//! what may go wrong; whether and where it does is the scheduler's choice, so that a schedule that is run
//! again fails in the same place.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::mem;
use std::time::Duration;

use redis::{RedisResult, Value};
use shuttle::rand::{Rng, thread_rng};

use crate::clock::Moment;
use crate::engine::redis::wire::memory::{Network, broken, refused};
use crate::engine::simulation::redis::{Data, Redis};
use crate::kind::Kind;
use crate::kinds::Reentrant;
use crate::script::Scripts;
use crate::sync::{Condvar, Mutex, time};

/// The server's clock at the beginning, in µs since 1970.
const BEGINNING: i64 = 1_700_000_000_000_000;

#[derive(Default)]
pub(super) struct Server {
    state: Mutex<State>,
    /// A request has been executed, or a connection was closed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    redis: Redis,
    /// How much longer than nothing the requests so far have taken, by its clock: what ends now ends, however often somebody
    /// asks.
    took: Duration,
    /// How many connections there have been.
    connections: u64,
    lines: BTreeMap<u64, Line>,
    /// All channels so far that somebody has listened to.
    known: BTreeSet<String>,
    faults: Faults,
}

/// A connection.
#[derive(Default)]
struct Line {
    /// `None`: it will not arrive.
    replies: VecDeque<Option<Value>>,
    messages: VecDeque<Value>,
    listens: bool,
    broken: bool,
}

/// What may go wrong from now on, at most this many times each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Makes the very next ones go wrong instead of random ones.
    pub(super) surely: bool,
    /// Requests or their replies get lost, and their connections with them.
    pub(super) lost: u32,
    /// Connections are refused.
    pub(super) refused: u32,
}

/// Whether a fault of which `left` may still happen happens now.
fn chance(left: &mut u32, surely: bool) -> bool {
    let now = *left > 0 && (surely || thread_rng().gen_bool(0.3));
    *left -= u32::from(now);
    now
}

impl State {
    /// Returns the reply, unless it gets lost.
    fn run(&mut self, connection: u64, command: &[String]) -> Option<Value> {
        let script = matches!(&*command[0], "EVAL" | "EVALSHA");
        let lost = script && chance(&mut self.faults.lost, self.faults.surely);
        if lost && thread_rng().gen_bool(0.5) {
            return None;
        }
        if let [name, channel] = command
            && name == "SUBSCRIBE"
        {
            self.known.insert(channel.clone());
            self.lines.get_mut(&connection)?.listens = true;
        }
        // The server is always the same one.
        if command[0] == "INFO" {
            return Some(Value::Nil);
        }
        let words: Vec<_> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.took += Duration::from_micros(50);
        self.tick();
        let reply = self.redis.command(connection, &words).pop()?;
        for told in mem::take(&mut self.redis.state.told) {
            let message = [b"message".to_vec(), told.channel, told.text].map(Value::BulkString);
            let line = self.lines.get_mut(&told.connection).expect("it would have been told to nobody");
            line.messages.push_back(Value::Array(message.to_vec()));
        }
        self.check_positions();
        (!lost).then(|| reply.into())
    }

    fn tick(&mut self) {
        let now = i64::try_from((time::elapsed() + self.took).as_micros()).expect("not for ever");
        self.redis.set_time(BEGINNING + now);
    }

    /// A grant is announced only once: who has a position has listened before.
    fn check_positions(&self) {
        for (key, entry) in &self.redis.state.keys.keys {
            let Data::Hash(positions) = &entry.data else { continue };
            let owners =
                positions.keys().filter(|owner| key.ends_with(b":positions") && owner.contains(&b':'));
            for owner in owners.map(|owner| String::from_utf8_lossy(owner)) {
                let client = owner.split(':').next().unwrap_or_default();
                let listened = self.known.iter().any(|channel| channel.ends_with(client));
                assert!(listened, "no-sleep-before-subscribed: {owner} takes a queue position");
            }
        }
    }

    /// The keys of what somebody holds or waits for.
    fn in_use(&mut self) -> Vec<String> {
        self.tick();
        let keys = &self.redis.state.keys;
        let in_use = keys.keys.iter().filter(|(key, entry)| {
            // The permits are their users'; and a signal may still be noted for waiters that have left since.
            let idle = matches!(&entry.data, Data::Hash(fields) if fields.iter().all(|(field, value)| match &field[..] {
                b"used" => value == b"0",
                b"kind" => value == b"semaphore",
                field => field == b"permits" || field == b"signalled",
            }));
            let over = entry.expires.is_some_and(|ends| ends < keys.now);
            !(idle || over || key.ends_with(b":fence") || key.ends_with(b":tombstones"))
        });
        in_use.map(|(key, entry)| format!("{} {entry:?}", String::from_utf8_lossy(key))).collect()
    }
}

impl Server {
    /// From now on, no request for a reentrant lock needs a second round trip, within which its time could be over.
    pub(super) fn knows_scripts(&self) {
        let Scripts { acquire, leave, renew, .. } = Scripts::of(Reentrant::RULE).expect("a rule of ours");
        for script in [acquire, leave, renew] {
            let load = ["SCRIPT", "LOAD", &script.source].map(|word| word.as_bytes().to_vec());
            self.state.lock().redis.command(0, &load);
        }
    }

    pub(super) fn go_wrong(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Breaks all listening connections, with the messages that they have not read. Not one that is still being made: its
    /// client would make the next one after a pause, and time may stand still.
    pub(super) fn cut_listeners(&self) {
        let mut state = self.state.lock();
        let State { lines, redis, .. } = &mut *state;
        let made = |line: &Line| line.listens && line.replies.is_empty();
        for (connection, line) in lines.iter_mut().filter(|(_, line)| made(line)) {
            redis.hang_up(*connection);
            *line = Line { broken: true, ..Line::default() };
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Checks that nobody holds anything and nobody waits for anything.
    pub(super) fn is_left_empty(&self) {
        let in_use = self.state.lock().in_use();
        assert!(in_use.is_empty(), "something is left in Redis: {in_use:?}");
    }

    /// Waits until that is so.
    pub(super) fn wait_until_empty(&self) {
        let mut state = self.state.lock();
        while !state.in_use().is_empty() {
            self.changed.wait(&mut state);
        }
    }
}

impl Network for Server {
    fn takes_time(&self) -> bool {
        false
    }

    fn connect(&self, _address: &str, _limit: Duration) -> RedisResult<u64> {
        let mut state = self.state.lock();
        let Faults { surely, refused: left, .. } = &mut state.faults;
        if chance(left, *surely) {
            return Err(refused());
        }
        state.connections += 1;
        let connection = state.connections;
        state.lines.insert(connection, Line::default());
        Ok(connection)
    }

    fn send(&self, connection: u64, command: Vec<String>) -> RedisResult<()> {
        let mut state = self.state.lock();
        let reply = state.run(connection, &command);
        let line = state.lines.get_mut(&connection).filter(|line| !line.broken).ok_or_else(broken)?;
        line.replies.push_back(reply);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn receive(&self, connection: u64, until: Moment) -> RedisResult<Value> {
        let mut state = self.state.lock();
        let mut late = false;
        loop {
            let line = state.lines.get_mut(&connection).filter(|line| !line.broken).ok_or_else(broken)?;
            if let Some(reply) = line.replies.pop_front().or_else(|| line.messages.pop_front().map(Some)) {
                line.broken = reply.is_none();
                return reply.ok_or_else(broken);
            }
            if late {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            late = self.changed.wait_until(&mut state, until);
        }
    }

    fn hang_up(&self, connection: u64) {
        let mut state = self.state.lock();
        state.redis.hang_up(connection);
        state.lines.remove(&connection);
    }
}
