//! The workers of a run: started, stopped, killed and replaced.

use std::collections::BTreeMap;
use std::thread;

use redis_concurrent::Client;
use redis_concurrent::kinds::{Exclusive, Reentrant, Simple};
use redis_concurrent_testkit::Child;

use crate::history::fixture::{AFTERMATH, Fixture, RECOVERY};
use crate::history::log::{Event, Line, Who, read_all};
use crate::history::plan::{Blow, COMMAND, LOCKS, Victim};
use crate::history::times::Span;
use crate::history::worker::Orders;
use crate::server_days::connected;
use crate::support::{LONG, Random, builder, clock};

/// How often a holder is stopped in the hope that it still is one.
const TRIES: usize = 10;

pub struct Processes<'a> {
    fixture: &'a Fixture,
    orders: Orders,
    random: Random,
    /// The process in each slot, by its number.
    slots: Vec<(u64, Child)>,
    /// Sees who holds what.
    client: Client,
    /// When a process was killed.
    pub ends: BTreeMap<u64, u64>,
    /// Which process was stopped, and when.
    pub stops: Vec<(u64, Span)>,
    pub wrong: Vec<String>,
}

impl<'a> Processes<'a> {
    /// Starts so many workers with these orders, and returns when all of them work.
    pub fn start(fixture: &'a Fixture, orders: Orders, n: usize, random: Random) -> Self {
        let client = connected(|| builder(&fixture.locks.url()).command_timeout(COMMAND));
        let (slots, ends, stops, wrong) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        let mut processes = Processes { fixture, orders, random, slots, client, ends, stops, wrong };
        for slot in 0..n {
            let worker = processes.hire(slot);
            processes.slots.push(worker);
        }
        for (_, child) in &processes.slots {
            child.read_line_within(LONG).unwrap();
        }
        processes
    }

    fn hire(&mut self, slot: usize) -> (u64, Child) {
        self.orders.process += 1;
        self.orders.seed = self.random.below(u64::MAX);
        self.orders.url = self.fixture.url(slot);
        (self.orders.process, self.orders.spawn(self.fixture.logs()).unwrap())
    }

    pub fn suffer(&mut self, blow: Blow) {
        match blow {
            Blow::Kill(victim) => self.fixture.during("kill".into(), AFTERMATH, || {
                let slot = self.stop_victim(victim);
                let (process, child) = &mut self.slots[slot];
                child.kill9().unwrap();
                self.ends.insert(*process, clock());
                self.slots[slot] = self.hire(slot);
            }),
            // It lasts for longer than its lease and its waiter timeout: they are over when it goes on.
            Blow::Stop(victim, time) => self.fixture.during("stop".into(), RECOVERY, || {
                let slot = self.stop_victim(victim);
                let from = clock();
                thread::sleep(time);
                self.stops.push((self.slots[slot].0, (from, clock())));
                self.go_on(slot);
            }),
        }
    }

    /// Stops the victim, and returns its slot. A holder is stopped in the act, if that can be had: by
    /// the time that one stands still, another may hold.
    fn stop_victim(&mut self, victim: Victim) -> usize {
        let (lock, otherwise) = match victim {
            Victim::Slot(slot) => (None, slot),
            Victim::Holder(lock, slot) => (Some(lock), slot),
        };
        for _ in 0..TRIES {
            let Some(slot) = lock.and_then(|lock| self.holder(lock)) else { continue };
            self.stop(slot);
            if lock.and_then(|lock| self.holder(lock)) == Some(slot) {
                return slot;
            }
            self.go_on(slot);
        }
        self.stop(otherwise);
        otherwise
    }

    pub fn stop(&mut self, slot: usize) {
        let (process, child) = &mut self.slots[slot];
        if let Err(error) = child.stop() {
            self.wrong.push(format!("process {process}: {error}"));
        }
    }

    pub fn go_on(&mut self, slot: usize) {
        // If it has ended by itself, that was noted when it was stopped.
        let _ = self.slots[slot].1.cont();
    }

    /// The slot of the process that holds this lock, if that can be told.
    pub fn holder(&self, lock: &str) -> Option<usize> {
        if self.orders.library.is_some() {
            let holder = last_holder(&read_all(self.fixture.logs()), lock)?;
            return self.slots.iter().position(|(process, _)| *process == holder);
        }
        let at = LOCKS.iter().position(|it| *it == lock)?;
        let holder = if self.orders.reentrant[at] {
            self.client.lock_with_kind(lock, Reentrant).holder()
        } else {
            self.client.lock_with_kind(lock, Simple).holder()
        };
        let pid = holder.ok()??.process?.pid;
        self.slots.iter().position(|(_, child)| child.pid() == pid)
    }

    /// Has all of them end, and waits until they have.
    pub fn end(&mut self) {
        for (process, child) in &mut self.slots {
            if let Err(error) = child.say("stop") {
                self.wrong.push(format!("process {process}: {error}"));
            }
        }
        for (process, child) in &mut self.slots {
            match child.wait_within(LONG) {
                Ok(status) if status.success() => {}
                Ok(status) => self.wrong.push(format!("process {process} ended with {status}")),
                Err(error) => {
                    self.wrong.push(format!("process {process} has threads that never end: {error}"));
                    child.kill9().unwrap();
                }
            }
        }
    }

    /// Each lock can be had now, and gives a token above all before. Returns the tokens.
    pub fn last_tokens(&self) -> Vec<(&'static str, u64)> {
        let last = |(lock, reentrant): (&'static str, bool)| {
            let token = if reentrant {
                token(&self.client, Reentrant, lock)
            } else {
                token(&self.client, Simple, lock)
            };
            (lock, token)
        };
        LOCKS.into_iter().zip(self.orders.reentrant).map(last).collect()
    }
}

/// The process that has written down last that it holds this lock, and not yet that it releases it.
fn last_holder(lines: &[Line], lock: &str) -> Option<u64> {
    let (mut of_holder, mut holder) = (None, None);
    let mut of: BTreeMap<Who, bool> = BTreeMap::new();
    for Line { who, event, .. } in lines {
        match event {
            Event::Called { lock: name, .. } => drop(of.insert(*who, name == lock)),
            Event::Held { .. } if of[who] => (of_holder, holder) = (Some(*who), Some(who.process)),
            Event::Release { .. } if of_holder == Some(*who) => holder = None,
            _ => {}
        }
    }
    holder
}

fn token<K: Exclusive>(client: &Client, kind: K, name: &str) -> u64 {
    let lock = client.lock_with_kind(name, kind);
    let guard = lock.try_lock_for(LONG).unwrap().expect("the lock is free");
    guard.token()
}
