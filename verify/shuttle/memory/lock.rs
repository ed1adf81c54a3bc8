//! One exclusive lock: what the scripts in `lua/` do to it.

use std::collections::{BTreeMap, BTreeSet};

use redis::Value;

use super::server::Channels;
use crate::clock::Moment;

#[derive(Default)]
pub(super) struct Lock {
    /// Owner, number, end in ms.
    held: Option<(String, u64, u64)>,
    /// By arrival.
    queue: BTreeMap<u64, Place>,
    arrivals: u64,
    number: u64,
    gone: BTreeSet<String>,
}

struct Place {
    owner: String,
    prefix: String,
    lease: u64,
    waiter_timeout: u64,
    beat: u64,
}

pub(super) struct PendingAcquire {
    pub(super) owner: String,
    pub(super) lease: u64,
    pub(super) prefix: String,
    pub(super) waiter_timeout: u64,
    pub(super) how: AcquireMode,
    pub(super) arrival: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireMode {
    Try,
    Wait,
    Keep,
}

fn micros() -> u64 {
    u64::try_from(Moment::now().since(Moment::default()).as_micros()).unwrap_or(u64::MAX)
}

fn millis() -> u64 {
    micros() / 1_000
}

impl Lock {
    pub(super) fn acquire(&mut self, ask: &PendingAcquire, channels: &mut Channels) -> Vec<Value> {
        let owner = &ask.owner;
        if self.gone.contains(owner) {
            return never("over");
        }
        if let Some(answer) = self.inside(owner) {
            return answer;
        }
        match ask.how {
            AcquireMode::Try => {
                self.settle(None, channels);
                if self.queue.is_empty() {
                    self.admit(owner, ask.lease);
                }
            }
            AcquireMode::Keep if self.arrival(owner).is_none() => {
                self.settle(None, channels);
                return never("gone");
            }
            AcquireMode::Keep | AcquireMode::Wait => {
                self.enqueue(ask, channels);
                self.settle(Some(owner), channels);
            }
        }
        self.inside(owner).unwrap_or_else(|| self.busy(ask))
    }

    pub(super) fn leave(&mut self, owner: &str, unsettled: bool, channels: &mut Channels) -> bool {
        self.look();
        let inside = self.held.take_if(|(holder, ..)| holder == owner).is_some();
        self.queue.retain(|_, place| place.owner != owner);
        if unsettled {
            self.gone.insert(owner.to_owned());
        }
        self.settle(None, channels);
        inside
    }

    pub(super) fn renew(&mut self, owner: &str, lease: u64) -> Value {
        self.look();
        match &mut self.held {
            Some((holder, _, end)) if holder == owner => {
                *end = millis() + lease;
                int(lease)
            }
            _ => Value::Int(-1),
        }
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.look();
        self.held.is_none() && self.queue.is_empty()
    }

    fn look(&mut self) {
        self.held.take_if(|(.., end)| *end <= millis());
    }

    fn inside(&mut self, owner: &str) -> Option<Vec<Value>> {
        self.look();
        let (_, number, end) = self.held.as_ref().filter(|(holder, ..)| holder == owner)?;
        Some(vec![Value::Int(1), int(*number), int(end - millis())])
    }

    fn busy(&self, ask: &PendingAcquire) -> Vec<Value> {
        let beat = ask.waiter_timeout.min(ask.lease) / 3;
        let lapse = self.held.as_ref().map_or(beat, |(.., end)| end - millis());
        let arrival = self.arrival(&ask.owner).map(|a| a.to_string()).unwrap_or_default();
        let again = int(beat.min(lapse).max(1));
        vec![Value::Int(0), int(self.number), again, Value::BulkString(arrival.into())]
    }

    /// The last number.
    pub(super) fn last(&self) -> u64 {
        self.number
    }

    fn arrival(&self, owner: &str) -> Option<u64> {
        self.queue.iter().find(|(_, place)| place.owner == owner).map(|(arrival, _)| *arrival)
    }

    fn enqueue(&mut self, ask: &PendingAcquire, channels: &Channels) {
        let there = self.arrival(&ask.owner);
        // What is granted is told only once.
        let heard = channels.was_there(&channel(&ask.prefix, &ask.owner));
        assert!(there.is_some() || heard, "no-sleep-before-subscribed: {} takes a place", ask.owner);
        let arrival = there.or(ask.arrival).unwrap_or(self.arrivals + 1);
        self.arrivals = self.arrivals.max(arrival);
        let (owner, prefix) = (ask.owner.clone(), ask.prefix.clone());
        let place =
            Place { owner, prefix, lease: ask.lease, waiter_timeout: ask.waiter_timeout, beat: millis() };
        self.queue.insert(arrival, place);
    }

    fn admit(&mut self, owner: &str, lease: u64) -> bool {
        if self.held.is_some() {
            return false;
        }
        self.number = (self.number + 1).max(micros());
        self.held = Some((owner.to_owned(), self.number, millis() + lease));
        true
    }

    fn settle(&mut self, me: Option<&str>, channels: &mut Channels) {
        self.look();
        while let Some((arrival, place)) = self.queue.pop_first() {
            if millis() - place.beat > place.waiter_timeout {
                continue;
            }
            if !self.admit(&place.owner, place.lease) {
                self.queue.insert(arrival, place);
                return;
            }
            if Some(place.owner.as_str()) == me {
                continue;
            }
            let channel = channel(&place.prefix, &place.owner);
            if channels.is_heard(&channel) {
                channels.publish(&channel, &format!("{} in {} {}", place.owner, self.number, place.lease));
            } else {
                self.held = None;
            }
        }
    }
}

/// The inbox of an owner.
fn channel(prefix: &str, owner: &str) -> String {
    format!("{prefix}{}", owner.split(':').next().unwrap_or_default())
}

fn never(why: &str) -> Vec<Value> {
    vec![Value::Int(-1), Value::BulkString(why.into())]
}

fn int(n: u64) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}
