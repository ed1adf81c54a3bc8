//! Requests of several threads in one write, while all connections are in use.
//!
//! A thread that finds every connection of the pool in use joins those that wait for one. The first of them, the
//! leader, waits for the pool; the others, its followers, wait for the leader, which sends their requests behind its own
//! in one write and hands each its reply. Where a connection is free nobody joins, so nobody waits for company.
//!
//! Databases write their logs in this way: group commit (DeWitt et al., *Implementation Techniques for Main Memory
//! Database Systems*, SIGMOD 1984).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use redis::{RedisError, Value};

use super::connection::{By, Connection};
use super::pool::Pooled;
use crate::clock::Moment;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// How many followers a leader takes at most: their replies come together, and it waits for all of them. One where
/// schedules are tried, so that some are left.
const FOLLOWERS: usize = if cfg!(shuttle) { 1 } else { 63 };

/// Those that wait for a connection of one pool.
#[derive(Default)]
pub(crate) struct Batch {
    /// A leader waits for the pool; changed while the mutex is held.
    led: AtomicBool,
    followers: Mutex<VecDeque<Arc<Follower>>>,
}

/// A request that goes with another thread's.
struct Follower {
    packed: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Queued,
    Sent(By),
    Replied(Answer),
    /// It leads those behind it.
    Leads,
    /// It is to wait for the pool by itself.
    Alone,
    /// Its thread does not wait any longer.
    GivenUp,
}

/// What came of a request that a leader sent.
pub(crate) struct Answer {
    pub(crate) value: Result<Value, RedisError>,
    pub(crate) by: By,
}

/// Who sends a request.
pub(crate) enum Sender {
    /// Its thread, by this connection; with those of others.
    Own(Pooled, By, Followers),
    /// Another thread has sent it.
    Leader(Answer),
}

/// What a thread is to do that has joined.
pub(crate) enum Joined<'a> {
    /// Wait for the pool, and send what has come meanwhile.
    Leader(Leader<'a>),
    /// Wait for the pool by itself.
    Alone,
    /// Nothing: its leader has sent its request.
    Sent(Answer),
    /// Its time was up before anything was sent.
    TimedOut,
}

impl Batch {
    /// Whether a thread waits for a connection, or is about to have one.
    pub(crate) fn is_led(&self) -> bool {
        self.led.load(Ordering::Relaxed)
    }

    /// Waits with others for a connection, until `limit`; at once the leader where there is none.
    pub(crate) fn join(&self, packed: &[u8], limit: Moment) -> Joined<'_> {
        let follower = {
            let mut followers = self.followers.lock();
            if !self.led.swap(true, Ordering::Relaxed) {
                return Joined::Leader(Leader { batch: self, leads: true });
            }
            let state = Mutex::new(State::Queued);
            let follower = Arc::new(Follower { packed: packed.to_vec(), state, changed: Condvar::new() });
            followers.push_back(follower.clone());
            follower
        };
        let mut state = follower.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::GivenUp) {
                State::Replied(answer) => return Joined::Sent(answer),
                State::Leads => return Joined::Leader(Leader { batch: self, leads: true }),
                State::Alone | State::GivenUp => return Joined::Alone,
                State::Queued if limit <= Moment::now() => return Joined::TimedOut,
                State::Sent(by) if limit <= Moment::now() => {
                    let by = By { limit: limit.since(by.asked), ..by };
                    let value = Err(io::Error::from(io::ErrorKind::TimedOut).into());
                    return Joined::Sent(Answer { value, by });
                }
                waiting => *state = waiting,
            }
            match limit.instant() {
                Some(instant) => drop(follower.changed.wait_until(&mut state, instant)),
                None => follower.changed.wait(&mut state),
            }
        }
    }
}

impl Follower {
    /// Changes its state, if its thread waits still.
    fn becomes(&self, next: State) -> bool {
        let mut state = self.state.lock();
        let waits = !matches!(*state, State::GivenUp);
        if waits {
            *state = next;
            self.changed.notify_one();
        }
        waits
    }

    /// Its request is about to be sent, if its thread waits still.
    fn begins(&self, by: By) -> bool {
        let mut state = self.state.lock();
        let waits = matches!(*state, State::Queued);
        if waits {
            *state = State::Sent(by);
        }
        waits
    }
}

/// The thread that waits for the pool, for itself and its followers. Dropped without a connection, it leaves each of
/// them to itself: what it could not have, they may.
pub(crate) struct Leader<'a> {
    batch: &'a Batch,
    leads: bool,
}

impl Leader<'_> {
    /// Has a connection: those that go by it as well. If there are more, the first of these leads them.
    pub(crate) fn followers(mut self, by: By) -> Followers {
        self.leads = false;
        let mut queue = self.batch.followers.lock();
        let mut waiting = VecDeque::new();
        while waiting.len() < FOLLOWERS
            && let Some(follower) = queue.pop_front()
        {
            if follower.begins(by) {
                waiting.push_back(follower);
            }
        }
        let mut led = false;
        while !led && let Some(next) = queue.pop_front() {
            led = next.becomes(State::Leads);
        }
        self.batch.led.store(led, Ordering::Relaxed);
        Followers { waiting, by: Some(by) }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.leads {
            let mut queue = self.batch.followers.lock();
            self.batch.led.store(false, Ordering::Relaxed);
            for follower in queue.drain(..) {
                follower.becomes(State::Alone);
            }
        }
    }
}

/// The followers whose requests go in the next write. Dropped, it tells those that have no reply yet that the
/// connection is gone.
#[derive(Default)]
pub(crate) struct Followers {
    waiting: VecDeque<Arc<Follower>>,
    /// The leader's connection; `None` where nobody follows.
    by: Option<By>,
}

impl Followers {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Sends `packed` and the followers' requests, and hands these their replies. Returns the reply to `packed`. Blocks
    /// until `limit` at most; the followers' own time has no say in it.
    pub(crate) fn exchange(
        mut self,
        connection: &mut Connection,
        packed: &[u8],
        limit: Moment,
    ) -> Result<Value, RedisError> {
        let Some(by) = self.by else { return connection.link.request(packed) };
        let mut requests = packed.to_vec();
        self.waiting.iter().for_each(|follower| requests.extend_from_slice(&follower.packed));
        connection.write(&requests)?;
        let own = connection.read()?;
        while let Some(follower) = self.waiting.front() {
            connection.limit_to(limit);
            // Without it the connection is broken, and whoever still waits learns of that.
            let Ok(value) = connection.read() else { break };
            connection.check_role(&value);
            follower.becomes(State::Replied(Answer { value: Ok(value), by }));
            self.waiting.pop_front();
        }
        Ok(own)
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        for (follower, by) in self.waiting.drain(..).zip(self.by.into_iter().cycle()) {
            // A timeout was the leader's, so it is no timeout to them: they may ask again.
            let gone = "the connection was given up before the reply came";
            let value = Err(io::Error::new(io::ErrorKind::ConnectionAborted, gone).into());
            follower.becomes(State::Replied(Answer { value, by }));
        }
    }
}
