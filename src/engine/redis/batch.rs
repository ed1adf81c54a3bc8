//! Requests of several threads in one write, while all connections are in use.
//!
//! A thread that finds every connection of the pool in use joins the threads that wait for one. The first of
//! them, the leader, waits for the pool. The others, its followers, wait for the leader, which sends their
//! requests behind its own in one write and hands each its reply. If a connection is free, no thread joins,
//! so none waits for company. With 16 connections, 32 and 64 threads that each have a lock of their own get
//! 1.3 to 1.4 times as many pairs a second by this (`docs/design/benchmarks.md`).
//!
//! Databases write their logs in this way: group commit (DeWitt et al., *Implementation Techniques for Main
//! Memory Database Systems*, SIGMOD 1984).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use redis::{RedisError, Value};

use crate::clock::Moment;
use crate::engine::redis::connection::{By, Connection};
use crate::engine::redis::pool::Given;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// How many followers a leader takes at most: their replies arrive together, and it waits for all of them. A
/// single one under shuttle, so that some are left over.
const FOLLOWERS: usize = if cfg!(shuttle) { 1 } else { 63 };

/// The threads that wait for a connection of one pool.
#[derive(Default)]
pub(crate) struct Batch {
    /// A leader waits for the pool, or is about to get a connection; changed while the mutex is held.
    pub(super) led: AtomicBool,
    followers: Mutex<VecDeque<Arc<Follower>>>,
}

/// A request that is sent together with another thread's.
struct Follower {
    packed: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Queued,
    Sent(By),
    Replied(BatchReply),
    /// It leads the followers behind it.
    Leads,
    /// Nobody sends it: its thread no longer waits, or has to wait for the pool by itself.
    Alone,
}

/// The outcome of a request that a leader sent.
pub(crate) struct BatchReply {
    pub(crate) value: Result<Value, RedisError>,
    pub(crate) by: By,
}

/// Which thread sends a request.
pub(crate) enum Sender {
    /// Its own, on this connection, together with those of followers.
    Own(Given, By, Followers),
    /// Another thread has sent it.
    Leader(BatchReply),
}

/// What a thread that has joined has to do.
pub(crate) enum Joined<'a> {
    /// Wait for the pool, and send what has arrived meanwhile.
    Leader(BatchLeader<'a>),
    /// Wait for the pool by itself, if it has time left.
    Alone,
    /// Nothing: its leader has sent its request.
    Sent(BatchReply),
}

impl Batch {
    /// Waits with others for a connection, until `limit`. If there are no others, returns at once as the
    /// leader.
    pub(crate) fn join(&self, packed: &[u8], limit: Moment) -> Joined<'_> {
        let follower = {
            let mut followers = self.followers.lock();
            if !self.led.swap(true, Ordering::Relaxed) {
                return Joined::Leader(BatchLeader { batch: self, leads: true });
            }
            let state = Mutex::new(State::Queued);
            let follower = Arc::new(Follower { packed: packed.to_vec(), state, changed: Condvar::new() });
            followers.push_back(follower.clone());
            follower
        };
        let mut state = follower.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Alone) {
                State::Replied(answer) => return Joined::Sent(answer),
                State::Leads => return Joined::Leader(BatchLeader { batch: self, leads: true }),
                State::Alone => return Joined::Alone,
                State::Queued if limit <= Moment::now() => return Joined::Alone,
                State::Sent(by) if limit <= Moment::now() => {
                    let value = Err(io::Error::from(io::ErrorKind::TimedOut).into());
                    return Joined::Sent(BatchReply { value, by });
                }
                waiting => *state = waiting,
            }
            limit.wait_on(&follower.changed, &mut state);
        }
    }
}

impl Follower {
    /// Changes its state and returns `true`, if its thread still waits. It goes on doing so once its request is about to
    /// be sent.
    fn becomes(&self, next: State) -> bool {
        let mut state = self.state.lock();
        let waits = !matches!(*state, State::Alone);
        if waits {
            if !matches!(next, State::Sent(_)) {
                self.changed.notify_one();
            }
            *state = next;
        }
        waits
    }
}

/// The thread that waits for the pool, for itself and its followers. If it is dropped without a connection,
/// the followers wait for the pool by themselves: they may get what it could not.
pub(crate) struct BatchLeader<'a> {
    batch: &'a Batch,
    leads: bool,
}

impl BatchLeader<'_> {
    /// Takes the followers whose requests go by the leader's connection, now that it has one. If there are
    /// more, the first of these leads the rest.
    pub(crate) fn followers(mut self, by: By) -> Followers {
        self.leads = false;
        let mut queue = self.batch.followers.lock();
        let mut waiting = VecDeque::new();
        while waiting.len() < FOLLOWERS
            && let Some(follower) = queue.pop_front()
        {
            if follower.becomes(State::Sent(by)) {
                waiting.push_back(follower);
            }
        }
        let mut led = false;
        while !led && let Some(next) = queue.pop_front() {
            led = next.becomes(State::Leads);
        }
        self.batch.led.store(led, Ordering::Relaxed);
        Followers(Some(Box::new(Followed { waiting, by })))
    }
}

impl Drop for BatchLeader<'_> {
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

/// The followers whose requests go in the next write. Boxed, as there are mostly none, and this is moved a few times.
#[derive(Default)]
pub(crate) struct Followers(Option<Box<Followed>>);

/// When it is dropped, those that have no reply yet get an error, as the connection is gone.
struct Followed {
    waiting: VecDeque<Arc<Follower>>,
    /// The leader's connection.
    by: By,
}

impl Followers {
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |it| it.waiting.len())
    }

    /// Adds their requests.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        let all = self.0.iter().flat_map(|it| &it.waiting);
        all.for_each(|follower| out.extend_from_slice(&follower.packed));
    }

    /// Reads their replies and hands them over, until `limit` at most: their own deadlines do not count.
    pub(crate) fn receive(self, connection: &mut Connection, limit: Moment) {
        let Some(mut followed) = self.0 else { return };
        while let Some(follower) = followed.waiting.front() {
            // Without it the connection is broken, and the followers that still wait get that error.
            let Ok(value) = connection.read(limit) else { break };
            follower.becomes(State::Replied(BatchReply { value: Ok(value), by: followed.by }));
            followed.waiting.pop_front();
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        while let Some(follower) = self.waiting.pop_front() {
            // If there was a timeout, it was the leader's and not theirs: they may ask again.
            let gone = "the connection was given up before the reply came";
            let value = Err(io::Error::new(io::ErrorKind::ConnectionAborted, gone).into());
            follower.becomes(State::Replied(BatchReply { value, by: self.by }));
        }
    }
}
