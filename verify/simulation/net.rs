//! The simulated network and its server: each request and each reply takes its time, connections keep what they carry
//! in order, and what goes wrong is planned beforehand. A thread of its own carries all of it, as time passes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};

use super::checks::{happens, sometimes};
use super::faults::{Fault, Plan};
use super::redis::{Keyspace, Redis, Reply};
use crate::clock::Moment;
use crate::engine::call::backoff::Rng;
use crate::engine::redis::wire::memory::{Network, broken, refused};
use crate::sync::{Condvar, Mutex, time};

/// The server's clock at the beginning, in µs since 1970.
const BEGINNING: i64 = 1_700_000_000_000_000;
/// How often what a replica has is taken down.
pub(super) const EACH: Duration = Duration::from_millis(250);

pub(super) struct Net {
    state: Mutex<State>,
    /// For the thread that carries.
    changed: Condvar,
}

struct State {
    rng: Rng,
    redis: Redis,
    /// How much its clock is ahead, in µs.
    ahead: i64,
    run: u64,
    up_since: Duration,
    /// What a replica has, the newest last.
    replica: VecDeque<(Duration, Keyspace)>,
    lines: BTreeMap<u64, Line>,
    events: BTreeMap<(Moment, u64), Event>,
    sequence: u64,
    plan: Plan,
    /// Until when messages are late, and by how much at most.
    slow: (Moment, Duration),
    /// Until when nothing goes to or from a process.
    apart: BTreeMap<String, Moment>,
    down_until: Moment,
    over: bool,
    /// Prints what reaches the server, and what it says.
    shows: bool,
}

/// A connection.
struct Line {
    process: String,
    open: bool,
    /// Its process has closed it, or was told that it broke.
    left: bool,
    told: Arc<Condvar>,
    replies: VecDeque<Value>,
    messages: VecDeque<[String; 2]>,
    /// When what was sent last arrives: what is sent later does not arrive before it.
    there: Moment,
    back: Moment,
}

enum Event {
    Request(u64, Vec<String>),
    Reply(u64, Value),
    Message(u64, [String; 2]),
    Left(u64),
    Fault(usize),
    Ends(Fault),
    Replicates,
}

impl State {
    fn at(&mut self, when: Moment, event: Event) {
        self.sequence += 1;
        self.events.insert((when, self.sequence), event);
    }

    /// When something that is sent now by or to this process arrives.
    fn arrival(&mut self, process: &str) -> Moment {
        let now = Moment::now();
        let mut micros = 100 + self.rng.below(400);
        if now < self.slow.0 {
            micros += self.rng.below(self.slow.1.as_micros() as usize);
        }
        let healed = self.apart.get(process).copied().unwrap_or_default();
        now.after(Duration::from_micros(micros as u64)).max(healed)
    }

    fn cut(&mut self, connection: u64) {
        self.redis.hang_up(connection);
        if let Some(line) = self.lines.get_mut(&connection) {
            line.open = false;
            line.told.notify_all();
        }
    }

    fn cut_all(&mut self, which: impl Fn(&Line) -> bool) {
        let cut: Vec<u64> = self.lines.iter().filter(|(_, line)| which(line)).map(|(id, _)| *id).collect();
        cut.into_iter().for_each(|connection| self.cut(connection));
    }

    fn is_up(&self) -> bool {
        self.down_until <= Moment::now()
    }

    fn run(&mut self, connection: u64, command: &[String]) {
        let Some(line) = self.lines.get(&connection).filter(|line| line.open && self.is_up()) else { return };
        let process = line.process.clone();
        if line.left {
            sometimes("a request arrives whose sender has given up");
        }
        let now = i64::try_from(time::elapsed().as_micros()).expect("not for ever");
        self.redis.set_time(BEGINNING + now + self.ahead);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let replies = match words[..] {
            ["INFO", ..] => vec![Reply::Bulk(self.info().into_bytes())],
            ["CLIENT", ..] => vec![Reply::ok()],
            _ => {
                let words: Vec<_> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
                self.redis.command(connection, &words)
            }
        };
        let told = std::mem::take(&mut self.redis.state.told);
        if self.shows {
            let (at, told) = (time::elapsed(), told.iter().map(|it| String::from_utf8_lossy(&it.text)));
            println!("{at:?} {process}: {command:?} -> {replies:?} {:?}", told.collect::<Vec<_>>());
        }
        for told in told {
            let Some(to) = self.lines.get(&told.connection).map(|line| line.process.clone()) else {
                continue;
            };
            let when = self.arrival(&to);
            let line = self.lines.get_mut(&told.connection).expect("just seen");
            line.back = line.back.max(when);
            let (when, text) =
                (line.back, [told.channel, told.text].map(|it| String::from_utf8_lossy(&it).into()));
            self.at(when, Event::Message(told.connection, text));
        }
        for reply in replies {
            if let Reply::Error(text) = &reply {
                match &text[..3] {
                    "NOS" => sometimes("a script is unknown"),
                    "OOM" => sometimes("a request is refused for want of memory"),
                    _ => {}
                }
            }
            let when = self.arrival(&process);
            let line = self.lines.get_mut(&connection).expect("just seen");
            line.back = line.back.max(when);
            let when = line.back;
            self.at(when, Event::Reply(connection, reply.into()));
        }
    }

    fn info(&self) -> String {
        let up = (time::elapsed() - self.up_since).as_secs();
        let run = self.run;
        format!("redis_version:7.0.15\r\nrun_id:{run:040x}\r\nuptime_in_seconds:{up}\r\nrole:master\r\n")
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
            Event::Message(connection, text) => match self.lines.get_mut(&connection) {
                Some(line) if line.open && !line.left => {
                    line.messages.push_back(text);
                    line.told.notify_all();
                }
                _ => sometimes("a message reaches nobody"),
            },
            Event::Left(connection) => {
                self.redis.hang_up(connection);
                self.lines.remove(&connection);
            }
            Event::Fault(i) => self.begins(i),
            Event::Ends(Fault::Full(_)) => self.redis.state.full = false,
            Event::Ends(_) => {}
            Event::Replicates => {
                self.replica.push_back((time::elapsed(), self.redis.state.keys.clone()));
                if self.replica.len() > 20 {
                    self.replica.pop_front();
                }
                self.at(Moment::now().after(EACH), Event::Replicates);
            }
        }
    }

    fn begins(&mut self, i: usize) {
        let now = Moment::now();
        let fault = self.plan.faults[i].1.clone();
        if self.shows {
            println!("{:?} {fault:?}", time::elapsed());
        }
        match &fault {
            Fault::Cut => self.cut_all(|_| true),
            Fault::CutOf(process) => self.cut_all(|line| line.process == *process),
            Fault::Slow(lasts, by) => self.slow = (now.after(*lasts), *by),
            Fault::Apart(process, lasts) => {
                self.apart.insert(process.clone(), now.after(*lasts));
            }
            Fault::Forgets => self.redis.forget_scripts(),
            Fault::Full(lasts) => {
                self.redis.state.full = true;
                self.at(now.after(*lasts), Event::Ends(fault));
            }
            Fault::Restart(lasts) => self.restarts(*lasts),
            Fault::Empty(lasts) => {
                self.redis.state.keys.keys.clear();
                self.restarts(*lasts);
            }
            Fault::Failover(lag) => {
                let then = time::elapsed().saturating_sub(*lag);
                let before = self.replica.iter().rev().find(|(at, _)| *at <= then);
                if let Some((_, keys)) = before {
                    self.redis.state.keys = keys.clone();
                }
                self.restarts(Duration::ZERO);
            }
            Fault::Clock(micros) => self.ahead += micros,
        }
    }

    fn restarts(&mut self, lasts: Duration) {
        self.cut_all(|_| true);
        self.redis.restart();
        self.run += 1;
        self.up_since = time::elapsed() + lasts;
        self.down_until = Moment::now().after(lasts);
    }
}

impl Net {
    pub(super) fn new(seed: u64, plan: Plan) -> Net {
        let now = Moment::now();
        let mut state = State {
            rng: Rng(seed),
            redis: Redis::default(),
            ahead: 0,
            run: 1,
            up_since: time::elapsed(),
            replica: VecDeque::new(),
            lines: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            slow: (now, Duration::from_micros(1)),
            apart: BTreeMap::new(),
            down_until: now,
            over: false,
            shows: std::env::var_os("TRACE").is_some(),
            plan,
        };
        for i in 0..state.plan.faults.len() {
            state.at(now.after(state.plan.faults[i].0), Event::Fault(i));
        }
        if state.plan.fails_over() {
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
                Some(when) if Moment::now() < when => {
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

    pub(super) fn is_over(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    /// The keys that are stored now, and whether each expires.
    pub(super) fn keys(&self) -> Vec<(String, bool)> {
        let mut state = self.state.lock();
        let now = i64::try_from(time::elapsed().as_micros()).expect("not for ever");
        let ahead = state.ahead;
        state.redis.set_time(BEGINNING + now + ahead);
        let keys = &state.redis.state.keys;
        let live = keys.keys.iter().filter(|(_, entry)| entry.expires.is_none_or(|ends| keys.now <= ends));
        live.map(|(key, entry)| (String::from_utf8_lossy(key).into_owned(), entry.expires.is_some()))
            .collect()
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

impl Network for Net {
    fn connect(&self, address: &str, limit: Duration) -> RedisResult<u64> {
        let process = address.split(':').next().unwrap_or_default().to_owned();
        let mut state = self.state.lock();
        let (now, there) = (Moment::now(), state.arrival(&process));
        if now.after(limit) < there {
            drop(state);
            time::sleep(limit);
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        drop(state);
        time::sleep(there.since(now));
        let mut state = self.state.lock();
        if !state.is_up() {
            return Err(refused());
        }
        state.sequence += 1;
        let (connection, now) = (state.sequence, Moment::now());
        let line = Line {
            process,
            open: true,
            left: false,
            told: Arc::new(Condvar::new()),
            replies: VecDeque::new(),
            messages: VecDeque::new(),
            there: now,
            back: now,
        };
        state.lines.insert(connection, line);
        Ok(connection)
    }

    fn send(&self, connection: u64, command: Vec<String>) -> RedisResult<()> {
        let mut state = self.state.lock();
        let line = state.lines.get(&connection).filter(|line| line.open).ok_or_else(broken)?;
        let process = line.process.clone();
        let when = state.arrival(&process);
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

    fn hear(&self, connection: u64, until: Moment) -> RedisResult<[String; 2]> {
        self.wait(connection, until, |line| line.messages.pop_front())
    }

    fn is_open(&self, connection: u64) -> bool {
        self.state.lock().lines.get(&connection).is_some_and(|line| line.open)
    }

    /// What was sent before still arrives.
    fn hang_up(&self, connection: u64) {
        let mut state = self.state.lock();
        let Some(line) = state.lines.get_mut(&connection) else { return };
        line.left = true;
        let (process, there) = (line.process.clone(), line.there);
        let when = state.arrival(&process).max(there);
        state.at(when, Event::Left(connection));
        drop(state);
        self.changed.notify_all();
    }
}
