//! The simulated network and its servers: each request and each reply takes its time, connections keep what they carry
//! in order, and what goes wrong is planned beforehand. A thread of its own carries all of it, as time passes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::checks::{always, drawn, happens, sometimes};
use super::cluster::Slots;
use super::faults::{DOUBLED, Fault, Plan, RESENT};
use super::part::WAITERS;
use super::redis::{Keyspace, Reply, Told};
use super::server::{EACH, Server};
use crate::clock::Moment;
use crate::engine::random::Rng;
use crate::engine::redis::slots::Slot;
use crate::engine::redis::wire::memory::{Network, broken, refused};
use crate::sync::{Condvar, Mutex, time};

pub(super) struct Net {
    state: Mutex<State>,
    /// For the thread that carries.
    changed: Condvar,
}

struct State {
    rng: Rng,
    servers: Vec<Server>,
    /// If they are the nodes of a cluster.
    slots: Option<Slots>,
    lines: BTreeMap<u64, Line>,
    events: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    plan: Plan,
    /// Until when messages are late, and by how much at most.
    slow: (Moment, Duration),
    /// The same of those to subscribers.
    late: (Moment, Duration),
    /// Until when messages to subscribers arrive twice.
    doubles: Moment,
    /// Until when they are lost.
    mute: Moment,
    /// Until when nothing goes between a process and a server.
    apart: BTreeMap<Ends, Moment>,
    /// Until when nothing goes to a process from a server.
    unheard: BTreeMap<Ends, Moment>,
    /// Nothing goes wrong in this run.
    calm: bool,
    /// No process stops or dies any more.
    ends: bool,
    over: bool,
    /// Prints what reaches the server, and what it says.
    shows: bool,
}

/// A process and a server.
pub(super) type Ends = (usize, usize);

/// A connection.
struct Line {
    ends: Ends,
    open: bool,
    /// Its process has closed it, or was told that it broke.
    left: bool,
    told: Arc<Condvar>,
    replies: VecDeque<Value>,
    /// When what was sent last arrives: what is sent later does not arrive before it.
    there: Moment,
    back: Moment,
}

enum Event {
    Request(u64, Vec<String>),
    Reply(u64, Value),
    Message(u64, Value),
    Left(u64),
    Fault(usize),
    /// A server has memory again.
    Frees(usize),
    /// A slot moves on, and again after so long.
    Moves(usize, Duration),
    Replicates,
    /// A node that is cut off notices it.
    Notices(usize),
    /// The replica of a node takes over, with these data.
    Promotes(usize, Keyspace),
    /// A node learns of it.
    Hears(usize, usize),
    /// The former primary does, and follows it.
    Follows(usize),
}

impl State {
    fn at(&mut self, when: Moment, event: Event) {
        self.sequence += 1;
        self.events.insert((when, self.sequence), event);
    }

    /// When something that is sent now between these arrives.
    fn arrival(&mut self, ends: Ends) -> Moment {
        let now = time::real();
        let mut micros = 100 + self.rng.below(400);
        if now < self.slow.0 {
            micros += self.rng.below(self.slow.1.as_micros() as usize);
        }
        let healed = self.apart.get(&ends).copied().unwrap_or_default();
        self.resent(healed).max(now.after(Duration::from_micros(micros as u64)))
    }

    /// The same of what is sent by a server.
    fn answer_arrives(&mut self, ends: Ends) -> Moment {
        let healed = self.unheard.get(&ends).copied().unwrap_or_default();
        self.resent(healed).max(self.arrival(ends))
    }

    /// When that arrives which cannot arrive before then.
    fn resent(&mut self, healed: Moment) -> Moment {
        let waits = healed.since(time::real()).min(RESENT).as_micros() as usize;
        if waits == 0 { healed } else { healed.after(Duration::from_micros(self.rng.below(waits) as u64)) }
    }

    fn cut(&mut self, connection: u64) {
        if let Some(line) = self.lines.get_mut(&connection) {
            self.servers[line.ends.1].redis.hang_up(connection);
            line.open = false;
            line.told.notify_all();
        }
    }

    /// Its process has closed it. What was sent before still arrives.
    fn leave(&mut self, connection: u64) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        line.left = true;
        let (ends, there) = (line.ends, line.there);
        let when = self.arrival(ends).max(there);
        self.at(when, Event::Left(connection));
    }

    fn which(&self, which: impl Fn(&Line) -> bool) -> Vec<u64> {
        self.lines.iter().filter(|(_, line)| which(line)).map(|(id, _)| *id).collect()
    }

    fn cut_all(&mut self, which: impl Fn(&Line) -> bool) {
        self.which(which).into_iter().for_each(|connection| self.cut(connection));
    }

    fn run(&mut self, connection: u64, command: &[String]) {
        let Some(line) = self.lines.get(&connection) else { return };
        let (ends, server) = (line.ends, &mut self.servers[line.ends.1]);
        if !line.open || !server.is_up() {
            return;
        }
        if line.left {
            sometimes("a request arrives whose sender has given up");
        }
        drawn("requests");
        let refused = match &self.slots {
            Some(slots) if command[0] == "CLUSTER" => Some(slots.map(ends.1, ends.0)),
            Some(slots) => slots.refuses(ends, server, command),
            None => None,
        };
        let replies =
            refused.map_or_else(|| server.run(ends.1, connection, command), |refused| vec![refused]);
        if self.calm {
            let waiting = server.waiting("rc:{limited}:queue");
            always("no-more-wait-than-may", waiting <= WAITERS, || format!("{waiting}"));
        }
        let mut told = std::mem::take(&mut server.redis.state.told);
        let published = std::mem::take(&mut server.redis.state.published);
        if let Some(slots) = self.slots.as_ref().filter(|slots| slots.hears(ends.1, slots.partner(ends.1))) {
            // To the replica, too.
            let other = &mut self.servers[slots.partner(ends.1)].redis.state;
            for [channel, text] in published {
                other.publish(true, &channel, &text);
            }
            other.published.clear();
            told.append(&mut other.told);
        }
        if self.slots.is_some() && command[0] == "PUBLISH" {
            // To all nodes.
            let hears = |other| self.slots.as_ref().is_some_and(|slots| slots.hears(ends.1, other));
            for (_, other) in self.servers.iter_mut().enumerate().filter(|(number, _)| hears(*number)) {
                other.run(0, 0, command);
                told.append(&mut other.redis.state.told);
            }
        }
        if self.shows {
            let (at, told) = (time::elapsed(), told.iter().map(|it| String::from_utf8_lossy(&it.text)));
            println!("{at:?} {ends:?}: {command:?} -> {replies:?} {:?}", told.collect::<Vec<_>>());
        }
        for told in told {
            let Some(to) = self.lines.get(&told.connection).map(|line| line.ends) else { continue };
            let mut when = self.answer_arrives(to);
            if time::real() < self.late.0 {
                let by = self.rng.below(self.late.1.as_micros() as usize);
                when = when.after(Duration::from_micros(by as u64));
            }
            let line = self.lines.get_mut(&told.connection).expect("just seen");
            line.back = line.back.max(when);
            let when = line.back;
            if time::real() < self.mute {
                sometimes("a message is lost");
                continue;
            }
            if time::real() < self.doubles {
                sometimes("a message arrives twice");
                let later = DOUBLED.as_micros() as usize * self.rng.below(2);
                let later = when.after(Duration::from_micros(self.rng.below(later.max(1)) as u64));
                self.at(later, message(&told));
            }
            self.at(when, message(&told));
        }
        for reply in replies {
            if let Reply::Error(text) = &reply {
                match &text[..3] {
                    "NOS" => sometimes("a script is unknown"),
                    "OOM" => sometimes("a request is refused for want of memory"),
                    _ => {}
                }
            }
            let when = self.answer_arrives(ends);
            let line = self.lines.get_mut(&connection).expect("just seen");
            line.back = line.back.max(when);
            let when = line.back;
            self.at(when, Event::Reply(connection, reply.into()));
        }
    }

    /// A slot that the server has begins to move, for so long.
    fn moves(&mut self, from: usize, lasts: Duration) {
        let keys = self.servers[from].keys();
        if self.slots.is_none() || keys.is_empty() {
            return;
        }
        let slot = Slot::of(keys[self.rng.below(keys.len())].0.as_bytes()).index();
        let nodes = self.slots.as_ref().map_or(0, Slots::primaries);
        let to = (from + 1 + self.rng.below(nodes - 1)) % nodes;
        if self.slots.as_mut().is_some_and(|slots| slots.begins(slot, from, to)) {
            self.at(time::real().after(lasts / 8), Event::Moves(slot, lasts / 8));
        }
    }

    /// One of its keys goes, or, if there is none left, one node after the other learns of it.
    fn moves_on(&mut self, slot: usize, step: Duration) {
        let slots = self.slots.as_mut().expect("a cluster");
        let (from, to) = slots.moving(slot);
        if let Some(key) = self.servers[from].key_in(slot) {
            let [from, to] = self.servers.get_disjoint_mut([from, to]).expect("two");
            from.gives(&key, to);
            return self.at(time::real().after(step), Event::Moves(slot, step));
        }
        if slots.learns(to, slot, to) {
            return self.at(time::real().after(step), Event::Moves(slot, step));
        }
        slots.ends(slot);
        for node in 0..self.servers.len() {
            self.slots.as_mut().expect("a cluster").learns(node, slot, to);
        }
        let nodes = [from, self.slots.as_ref().expect("a cluster").partner(from)];
        let of_it = |channel: &[u8]| Slot::of(channel).index() == slot;
        let ended = nodes.iter().flat_map(|node| self.servers[*node].redis.ends_channels(of_it)).collect();
        sometimes("a slot has moved");
        self.ends_channels(ended);
    }

    /// Tells subscribers that they hear no more of these sharded channels.
    fn ends_channels(&mut self, ended: Vec<(u64, Vec<u8>)>) {
        for (connection, channel) in ended {
            let ends =
                Reply::List(vec![Reply::Bulk(b"sunsubscribe".to_vec()), Reply::Bulk(channel), Reply::Int(0)]);
            let Some(ends_at) = self.lines.get(&connection).map(|line| line.ends) else { continue };
            let when = self.answer_arrives(ends_at);
            self.at(when, Event::Reply(connection, ends.into()));
        }
    }

    fn promotes(&mut self, node: usize, keys: Keyspace) {
        let slots = self.slots.as_mut().expect("a cluster");
        slots.promotes(node);
        let next = slots.partner(node);
        self.servers[next].takes_over(keys);
        sometimes("a node is succeeded by its replica");
        for other in (0..self.servers.len()).filter(|other| ![node, next].contains(other)) {
            let later = self.hears_later();
            self.at(later, Event::Hears(other, next));
        }
        let later = self.hears_later();
        self.at(later, Event::Follows(node));
    }

    /// When a node learns what has just happened to another one.
    fn hears_later(&mut self) -> Moment {
        time::real().after(Duration::from_millis(self.rng.below(200) as u64))
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Request(connection, command) => self.run(connection, &command),
            Event::Reply(connection, value) => match self.lines.get_mut(&connection) {
                Some(line) if line.open && !line.left => {
                    line.replies.push_back(value);
                    line.told.notify_all();
                }
                _ => sometimes("a reply comes too late"),
            },
            Event::Message(connection, value) => match self.lines.get_mut(&connection) {
                Some(line) if line.open && !line.left => {
                    line.replies.push_back(value);
                    line.told.notify_all();
                }
                _ => sometimes("a message reaches nobody"),
            },
            Event::Left(connection) => {
                if let Some(line) = self.lines.remove(&connection) {
                    self.servers[line.ends.1].redis.hang_up(connection);
                }
            }
            Event::Fault(i) => self.begins(i),
            Event::Moves(slot, step) => self.moves_on(slot, step),
            Event::Frees(server) => self.servers[server].redis.state.full = false,
            Event::Replicates => {
                self.servers.iter_mut().for_each(Server::replicates);
                self.at(time::real().after(EACH), Event::Replicates);
            }
            Event::Notices(node) => self.slots.as_mut().expect("a cluster").notices(node),
            Event::Promotes(node, keys) => self.promotes(node, keys),
            Event::Hears(node, primary) => {
                self.slots.as_mut().expect("a cluster").hears_of(node, primary);
            }
            Event::Follows(node) => {
                self.slots.as_mut().expect("a cluster").follows(node);
                let ended = self.servers[node].follows();
                self.ends_channels(ended);
            }
        }
    }

    fn begins(&mut self, i: usize) {
        let now = time::real();
        let (_, server, fault) = self.plan.faults[i];
        // Where a replica has taken over, to that.
        let server = self.slots.as_ref().map_or(server, |slots| slots.primary(server));
        if self.shows {
            println!("{:?} server {server}: {fault:?}", time::elapsed());
        }
        match fault {
            Fault::Stops(..) | Fault::Dies(_) if self.ends => {}
            Fault::Cut => self.cut_all(|line| line.ends.1 == server),
            Fault::CutOf(process) => self.cut_all(|line| line.ends == (process, server)),
            Fault::Slow(lasts, by) => self.slow = (now.after(lasts), by),
            Fault::Late(lasts, by) => self.late = (now.after(lasts), by),
            Fault::Apart(process, lasts) => {
                self.apart.insert((process, server), now.after(lasts));
            }
            Fault::Unheard(process, lasts) => {
                self.unheard.insert((process, server), now.after(lasts));
            }
            Fault::Doubles(lasts) => self.doubles = now.after(lasts),
            Fault::Mute(lasts) => self.mute = now.after(lasts),
            Fault::Forgets => self.servers[server].redis.forget_scripts(),
            Fault::Full(lasts) => {
                self.servers[server].redis.state.full = true;
                self.at(now.after(lasts), Event::Frees(server));
            }
            Fault::Stops(process, lasts) => time::stop(process + 1, now.after(lasts)),
            Fault::Dies(process) => {
                time::stop(process + 1, Moment::NEVER);
                let its = self.which(|line| line.ends.0 == process);
                its.into_iter().for_each(|connection| self.leave(connection));
            }
            Fault::Restart(lasts) => self.servers[server].restarts(lasts),
            Fault::Empty(lasts) => self.servers[server].restarts_empty(lasts, false),
            Fault::Replaced(lasts) => self.servers[server].restarts_empty(lasts, true),
            Fault::Failover(lag) => self.servers[server].fails_over(lag),
            Fault::Moves(lasts) => self.moves(server, lasts),
            Fault::Clock(micros) => self.servers[server].ahead += micros,
            Fault::Promoted(..) | Fault::Isolated(_) if self.is_in_trouble(server) => {}
            Fault::Promoted(lag, after) => {
                let had = self.servers[server].had(lag);
                let keys =
                    had.map_or_else(|| self.servers[server].redis.state.keys.clone(), |(_, keys)| keys);
                self.servers[server].restarts(after * 2);
                self.at(now.after(after), Event::Promotes(server, keys));
            }
            Fault::Isolated(after) => {
                let keys = self.servers[server].redis.state.keys.clone();
                self.slots.as_mut().expect("a cluster").isolates(server);
                self.at(now.after(after / 8 * 7), Event::Notices(server));
                self.at(now.after(after), Event::Promotes(server, keys));
            }
        }
        drawn(&format!("fault {}", fault.name()));
        let breaks =
            matches!(fault, Fault::Restart(_) | Fault::Empty(_) | Fault::Replaced(_) | Fault::Failover(_));
        if breaks || matches!(fault, Fault::Promoted(..)) && !self.servers[server].is_up() {
            self.cut_all(|line| line.ends.1 == server);
        }
    }

    /// Whether a node or its replica is down or cut off, so that no other fault of the kind can befall them.
    fn is_in_trouble(&self, node: usize) -> bool {
        let slots = self.slots.as_ref().expect("a cluster");
        let other = slots.partner(node);
        let apart = |it: usize| !self.servers[it].is_up() || slots.is_isolated(it);
        apart(node) || apart(other) || !self.servers[other].is_replica
    }
}

fn message(told: &Told) -> Event {
    let kind = if told.sharded { "smessage" } else { "message" };
    let parts = [kind.as_bytes(), &told.channel, &told.text].map(|it| Value::BulkString(it.to_vec()));
    Event::Message(told.connection, Value::Array(parts.to_vec()))
}

impl Net {
    pub(super) fn new(seed: u64, drifts: &[i64], cluster: bool, plan: Plan) -> Net {
        let now = time::real();
        let replicas = drifts.iter().filter(|_| cluster).map(|drift| Server::replica(*drift));
        let mut state = State {
            rng: Rng(seed),
            servers: drifts.iter().copied().map(Server::new).chain(replicas).collect(),
            slots: cluster.then(|| Slots::new(drifts.len() * 2)),
            lines: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            slow: (now, Duration::from_micros(1)),
            late: (now, Duration::from_micros(1)),
            doubles: now,
            mute: now,
            apart: BTreeMap::new(),
            unheard: BTreeMap::new(),
            calm: plan.faults.is_empty(),
            ends: false,
            over: false,
            shows: std::env::var_os("TRACE").is_some(),
            plan,
        };
        for i in 0..state.plan.faults.len() {
            state.at(now.after(state.plan.faults[i].0), Event::Fault(i));
        }
        if state.plan.has_replicas() {
            state.at(now, Event::Replicates);
        }
        Net { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Carries everything until it is over.
    pub(super) fn carry(&self) {
        let mut state = self.state.lock();
        while !state.over {
            match state.events.first_key_value().map(|((when, _), _)| *when) {
                None => self.changed.wait(&mut state),
                Some(when) if time::real() < when => {
                    self.changed.wait_until(&mut state, when);
                }
                Some(_) => {
                    let ((_, number), event) = state.events.pop_first().expect("just seen");
                    happens(number);
                    state.happens(event);
                }
            }
        }
    }

    /// From now on no process stops or dies.
    pub(super) fn ends(&self) {
        self.state.lock().ends = true;
    }

    pub(super) fn is_over(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    /// The keys that are stored now, and whether each expires.
    pub(super) fn keys(&self) -> Vec<(String, bool)> {
        self.state.lock().servers.iter_mut().flat_map(Server::keys).collect()
    }

    /// How long what a client holds of a lock lasts in Redis, if it holds any.
    pub(super) fn lasts(&self, lock: &str, client: &str) -> Option<Duration> {
        self.state.lock().servers.iter_mut().filter_map(|server| server.lasts(lock, client)).max()
    }

    /// When each server lost what it had for good.
    pub(super) fn lost(&self) -> Vec<Vec<Duration>> {
        self.state.lock().servers.iter().map(|server| server.lost.clone()).collect()
    }

    /// Waits until `take` finds something on this connection.
    fn wait<T>(
        &self,
        connection: u64,
        until: Moment,
        take: impl Fn(&mut Line) -> Option<T>,
    ) -> RedisResult<T> {
        let mut state = self.state.lock();
        let mut late = false;
        loop {
            let line = state.lines.get_mut(&connection).ok_or_else(broken)?;
            if let Some(taken) = take(line) {
                return Ok(taken);
            }
            if !line.open {
                return Err(broken());
            }
            if late {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            let told = line.told.clone();
            late = told.wait_until(&mut state, until);
        }
    }
}

/// The host by which a process reaches a server.
pub(super) fn host((process, server): Ends) -> String {
    format!("p{process}s{server}")
}

fn ends(address: &str) -> Ends {
    let host = address.split(':').next().unwrap_or_default();
    let (process, server) = host[1..].split_once('s').expect("a host of ours");
    (process.parse().expect("a process"), server.parse().expect("a server"))
}

impl Network for Net {
    fn connect(&self, address: &str, limit: Duration) -> RedisResult<u64> {
        let ends = ends(address);
        let mut state = self.state.lock();
        let (now, there) = (time::real(), state.arrival(ends));
        if now.after(limit) < there {
            drop(state);
            time::sleep(limit);
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        drop(state);
        time::sleep(there.since(now));
        let mut state = self.state.lock();
        if state.over || !state.servers[ends.1].is_up() {
            return Err(refused());
        }
        state.sequence += 1;
        let (connection, now) = (state.sequence, time::real());
        let line = Line {
            ends,
            open: true,
            left: false,
            told: Arc::new(Condvar::new()),
            replies: VecDeque::new(),
            there: now,
            back: now,
        };
        state.lines.insert(connection, line);
        Ok(connection)
    }

    fn send(&self, connection: u64, command: Vec<String>) -> RedisResult<()> {
        time::while_stopped();
        let mut state = self.state.lock();
        let line = state.lines.get(&connection).filter(|line| line.open).ok_or_else(broken)?;
        let ends = line.ends;
        let when = state.arrival(ends);
        let line = state.lines.get_mut(&connection).expect("just seen");
        line.there = line.there.max(when);
        let when = line.there;
        state.at(when, Event::Request(connection, command));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn receive(&self, connection: u64, until: Moment) -> RedisResult<Value> {
        self.wait(connection, until, |line| line.replies.pop_front())
    }

    fn hang_up(&self, connection: u64) {
        self.state.lock().leave(connection);
        self.changed.notify_all();
    }
}
