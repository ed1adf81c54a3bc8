//! The server: commands in, replies out, messages to the subscribers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use redis::{RedisResult, Value};
use shuttle::rand::{Rng, thread_rng};

use super::broken;
use super::lock::{self, Lock};
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex};

/// The server of one execution.
#[derive(Default)]
pub(crate) struct Server {
    state: Mutex<State>,
    /// A message has arrived, or a connection was closed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    connections: u64,
    locks: BTreeMap<String, Lock>,
    channels: Channels,
    faults: Faults,
}

/// What may go wrong from now on, at most this many times each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Makes the very next ones go wrong instead of random ones.
    pub(crate) surely: bool,
    /// Requests or their replies get lost, and their connections with them.
    pub(crate) lost: u32,
    /// Connections are refused.
    pub(crate) refused: u32,
}

/// The subscribers.
#[derive(Default)]
pub(super) struct Channels {
    subscribed: Vec<Subscription>,
    /// All channels so far.
    known: BTreeSet<String>,
}

struct Subscription {
    connection: u64,
    channel: String,
    messages: VecDeque<String>,
}

impl Channels {
    /// Returns how many subscribers will hear it if their connections last.
    pub(super) fn publish(&mut self, channel: &str, text: &str) -> i64 {
        let mut receivers = 0;
        for to in self.subscribed.iter_mut().filter(|s| s.channel == channel) {
            to.messages.push_back(text.to_owned());
            receivers += 1;
        }
        receivers
    }

    pub(super) fn has_subscribers(&self, channel: &str) -> bool {
        self.subscribed.iter().any(|s| s.channel == channel)
    }

    pub(super) fn was_there(&self, channel: &str) -> bool {
        self.known.contains(channel)
    }

    fn of(&mut self, connection: u64) -> Option<&mut Subscription> {
        self.subscribed.iter_mut().find(|s| s.connection == connection)
    }
}

impl Server {
    // ---- for tests

    pub(crate) fn go_wrong(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Breaks all listening connections, with whatever they have not read.
    pub(crate) fn cut_listeners(&self) {
        self.state.lock().channels.subscribed.clear();
        self.changed.notify_all();
    }

    /// Whether nobody holds anything and nobody waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().locks.values_mut().all(Lock::is_empty)
    }

    /// Waits until it is empty.
    pub(crate) fn wait_until_empty(&self) {
        let mut state = self.state.lock();
        while !state.locks.values_mut().all(Lock::is_empty) {
            self.changed.wait(&mut state);
        }
    }

    // ---- for connections

    pub(super) fn connect(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let Faults { surely, refused, .. } = &mut state.faults;
        if chance(refused, *surely) {
            return None;
        }
        state.connections += 1;
        Some(state.connections)
    }

    pub(super) fn hang_up(&self, connection: u64) {
        self.state.lock().channels.subscribed.retain(|s| s.connection != connection);
    }

    pub(super) fn is_subscribed(&self, connection: u64) -> bool {
        self.state.lock().channels.of(connection).is_some()
    }

    /// Runs a command. Returns `None` if no reply arrives.
    pub(super) fn run(&self, connection: u64, command: &[String]) -> Option<Value> {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut state = self.state.lock();
        let State { locks, channels, faults, .. } = &mut *state;
        let answer = match command[..] {
            ["PING"] => Value::Okay,
            // The server is always the same one.
            ["INFO", ..] => Value::Nil,
            // A lock's fence.
            ["GET", key] => {
                let lock = locks.get(key.trim_end_matches(":fence"));
                lock.map_or(Value::Nil, |lock| Value::BulkString(lock.last().to_string().into()))
            }
            ["SUBSCRIBE", channel] => {
                channels.known.insert(channel.to_owned());
                let (channel, messages) = (channel.to_owned(), VecDeque::new());
                channels.subscribed.push(Subscription { connection, channel, messages });
                Value::Okay
            }
            ["PUBLISH", channel, text] => Value::Int(channels.publish(channel, text)),
            ["EVALSHA" | "EVAL", script, _, key, _, _, _, _, _, ref args @ ..] => {
                let lost = chance(&mut faults.lost, faults.surely);
                if lost && thread_rng().gen_bool(0.5) {
                    return None;
                }
                let script = lock::script(script).expect("a script that is known here");
                let lock = locks.entry(key.to_owned()).or_insert_with(|| Lock::new(script, args));
                let answer = lock.run(script, args, channels);
                if lost {
                    self.changed.notify_all();
                    return None;
                }
                answer
            }
            _ => panic!("not a command of the engine's: {command:?}"),
        };
        self.changed.notify_all();
        Some(answer)
    }

    /// Returns the next message for this connection, waiting for it until `until`.
    pub(super) fn next_message(&self, connection: u64, until: Moment) -> RedisResult<String> {
        let mut state = self.state.lock();
        let mut late = false;
        loop {
            let Some(subscription) = state.channels.of(connection) else { return Err(broken()) };
            if let Some(text) = subscription.messages.pop_front() {
                return Ok(text);
            }
            if late {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            late = self.changed.wait_until(&mut state, until);
        }
    }
}

/// Whether a fault of which `left` may still happen happens now.
fn chance(left: &mut u32, surely: bool) -> bool {
    let now = *left > 0 && (surely || thread_rng().gen_bool(0.3));
    *left -= u32::from(now);
    now
}

/// Removes the first command from what was sent, if there is one.
pub(super) fn command(bytes: &mut &[u8]) -> Option<Vec<String>> {
    let number = |bytes: &mut &[u8]| -> Option<usize> {
        let end = bytes.iter().position(|b| *b == b'\r')?;
        let n = std::str::from_utf8(&bytes[1..end]).ok()?.parse().ok()?;
        *bytes = &bytes[end + 2..];
        Some(n)
    };
    let parts = number(bytes)?;
    let part = |_| {
        let n = number(bytes)?;
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        *bytes = &bytes[n + 2..];
        Some(text)
    };
    (0..parts).map(part).collect()
}
