//! One simulated server: a Redis in memory with a clock, a replica, and what happens to all of it at once.

use std::collections::VecDeque;
use std::time::Duration;

use super::redis::{Data, Keyspace, Redis, Reply};
use crate::engine::redis::slots::Slot;
use crate::sync::time;

/// Its clock at the beginning, in µs since 1970.
const BEGINNING: i64 = 1_700_000_000_000_000;
/// For how long it has been up then.
const UP: Duration = Duration::from_secs(3_600);
/// How often what a replica has is taken down.
pub(super) const EACH: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Server {
    pub(super) redis: Redis,
    /// How much its clock is ahead, in µs.
    pub(super) ahead: i64,
    /// By how many parts in a million it runs fast, or slow.
    drift: i64,
    /// It follows another one.
    pub(super) is_replica: bool,
    /// How often it has started.
    starts: u64,
    up_since: Duration,
    down_until: Duration,
    /// What a replica has, the newest last.
    replica: VecDeque<(Duration, Keyspace)>,
    /// When it lost all its data, unless a replica brought them back.
    pub(super) lost: Vec<Duration>,
}

impl Server {
    pub(super) fn new(drift: i64) -> Server {
        Server { drift, ..Server::default() }
    }

    /// One that follows another.
    pub(super) fn replica(drift: i64) -> Server {
        Server { is_replica: true, ..Server::new(drift) }
    }

    pub(super) fn is_up(&self) -> bool {
        self.down_until <= time::elapsed()
    }

    /// Runs a command of a connection, now.
    pub(super) fn run(&mut self, number: usize, connection: u64, command: &[String]) -> Vec<Reply> {
        self.set_time();
        match command.first().map(String::as_str) {
            Some("INFO") => vec![Reply::Bulk(self.info(number).into_bytes())],
            Some("CLIENT") => vec![Reply::ok()],
            _ => {
                let words: Vec<_> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
                self.redis.command(connection, &words)
            }
        }
    }

    fn set_time(&mut self) {
        let now = i64::try_from(time::elapsed().as_micros()).expect("not for ever");
        self.redis.set_time(BEGINNING + now + now * self.drift / 1_000_000 + self.ahead);
    }

    fn info(&self, number: usize) -> String {
        let up = (time::elapsed() + UP).saturating_sub(self.up_since).as_secs();
        let (run, role) = (self.starts, if self.is_replica { "slave" } else { "master" });
        format!(
            "redis_version:7.0.15\r\nrun_id:{number:020x}{run:020x}\r\nuptime_in_seconds:{up}\r\nrole:{role}\r\n"
        )
    }

    pub(super) fn restarts(&mut self, lasts: Duration) {
        self.redis.restart();
        self.starts += 1;
        self.up_since = time::elapsed() + UP + lasts;
        self.down_until = time::elapsed() + lasts;
    }

    /// Restarts without its data, or is another server that has been up for long.
    pub(super) fn restarts_empty(&mut self, lasts: Duration, replaced: bool) {
        self.redis.state.keys.keys.clear();
        self.lost.push(time::elapsed());
        self.restarts(lasts);
        if replaced {
            self.up_since = Duration::ZERO;
        }
    }

    pub(super) fn replicates(&mut self) {
        self.replica.push_back((time::elapsed(), self.redis.state.keys.clone()));
        if self.replica.len() > 20 {
            self.replica.pop_front();
        }
    }

    /// What a replica had so long ago, and since when.
    pub(super) fn had(&self, lag: Duration) -> Option<(Duration, Keyspace)> {
        let then = time::elapsed().saturating_sub(lag);
        self.replica.iter().rev().find(|(at, _)| *at <= then).cloned()
    }

    /// A replica takes over, with what it had so long ago.
    pub(super) fn fails_over(&mut self, lag: Duration) {
        if let Some((at, keys)) = self.had(lag) {
            self.redis.state.keys = keys;
            self.lost.retain(|lost| *lost <= at);
        }
        self.restarts(Duration::ZERO);
    }

    /// A replica takes over, with these data.
    pub(super) fn takes_over(&mut self, keys: Keyspace) {
        self.replica = VecDeque::from([(time::elapsed(), keys.clone())]);
        self.redis.state.keys = keys;
        self.is_replica = false;
    }

    /// It follows another one from now on, which takes the subscribers of its sharded channels from it: returns them.
    pub(super) fn follows(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.is_replica = true;
        self.redis.state.keys.keys.clear();
        self.replica.clear();
        self.redis.ends_channels(|_| true)
    }

    /// How long what a client holds of a lock lasts, if it holds any.
    pub(super) fn lasts(&mut self, lock: &str, client: &str) -> Option<Duration> {
        self.set_time();
        let keys = &self.redis.state.keys;
        let entry = keys.keys.get(format!("rc:{{{lock}}}").as_bytes())?;
        let its = |text: &Vec<u8>| text.starts_with(client.as_bytes());
        let holds = match &entry.data {
            Data::Text(owner) => its(owner),
            Data::Hash(fields) => fields.iter().any(|(name, value)| its(name) || its(value)),
            Data::Sorted(_) => false,
        };
        let left = entry.expires.map_or(i64::MAX, |at| at - keys.now);
        (holds && left >= 0).then(|| Duration::from_millis(left as u64))
    }

    /// How many positions a queue has.
    pub(super) fn waiting(&mut self, queue: &str) -> usize {
        let words = ["ZCARD", queue].map(|word| word.as_bytes().to_vec());
        match self.redis.command(0, &words)[..] {
            [Reply::Int(n)] => n as usize,
            _ => 0,
        }
    }

    /// Whether it has a key now.
    pub(super) fn has(&mut self, key: &str) -> bool {
        self.set_time();
        let words = ["EXISTS", key].map(|word| word.as_bytes().to_vec());
        self.redis.command(0, &words) == [Reply::Int(1)]
    }

    /// One of its keys in a slot, if it has any there.
    pub(super) fn key_in(&mut self, slot: usize) -> Option<Vec<u8>> {
        let keys = self.keys();
        let of_it = keys.into_iter().find(|(key, _)| Slot::of(key.as_bytes()).index() == slot);
        of_it.map(|(key, _)| key.into_bytes())
    }

    /// Gives a key to another server, with the time that it has left.
    pub(super) fn gives(&mut self, key: &[u8], to: &mut Server) {
        to.set_time();
        let Some(mut entry) = self.redis.state.keys.keys.remove(key) else { return };
        let (here, there) = (self.redis.state.keys.now, to.redis.state.keys.now);
        entry.expires = entry.expires.map(|at| at - here + there);
        to.redis.state.keys.keys.insert(key.to_vec(), entry);
    }

    /// The keys that are stored now, and whether each expires.
    pub(super) fn keys(&mut self) -> Vec<(String, bool)> {
        self.set_time();
        let keys = &self.redis.state.keys;
        let live = keys.keys.iter().filter(|(_, entry)| entry.expires.is_none_or(|ends| keys.now <= ends));
        live.map(|(key, entry)| (String::from_utf8_lossy(key).into_owned(), entry.expires.is_some()))
            .collect()
    }
}
