//! Lock and unlock as two requests on a bare socket: the library's own requests, and the smallest possible
//! ones.

use std::io;

use redis_concurrent::{Client, Error};

use super::bare::{Bare, FIRST, Template, id};
use super::recorder::{Words, heard};

/// A lock and its release as prepared bytes, with a new owner id each time.
pub(crate) struct Pair {
    bare: Bare,
    /// Lock and unlock.
    requests: [Template; 2],
    turn: u64,
}

impl Pair {
    /// Records the requests that the library sends for the lock `name`, to send them again with owner ids of
    /// our own.
    pub(crate) fn floor(port: u16, simple: bool, name: &str) -> io::Result<Pair> {
        if simple {
            return Pair::of(port, |client| client.simple_lock(name).lock()?.unlock());
        }
        Pair::of(port, |client| client.reentrant_lock(name).lock()?.unlock())
    }

    /// The same for the two requests that `play` sends.
    pub(crate) fn of(port: u16, play: impl Fn(&Client) -> Result<(), Error>) -> io::Result<Pair> {
        let calls = heard(port, play)?;
        let [lock, unlock, ..] = &calls[..] else {
            return Err(io::Error::other("the library's requests were not heard"));
        };
        // EVALSHA sha n key ... owner ...
        let keys = str::from_utf8(&lock[2]).ok().and_then(|n| n.parse::<usize>().ok());
        let keys = keys.ok_or_else(|| io::Error::other("the library's request has no keys"))?;
        Pair::new(port, [lock.clone(), unlock.clone()], 3 + keys)
    }

    /// `SET NX PX` and compare-and-delete, each as a script: the least that locks and unlocks.
    pub(crate) fn smallest(port: u16, name: &str) -> io::Result<Pair> {
        let mut bare = Bare::connect(port)?;
        let lock = bare.load("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])")?;
        let unlock =
            bare.load("return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0")?;
        let words = |words: &[&str]| words.iter().map(|w| w.as_bytes().to_vec()).collect();
        let requests =
            [words(&["EVALSHA", &lock, "1", name, "", "30000"]), words(&["EVALSHA", &unlock, "1", name, ""])];
        Pair::new(port, requests, 4)
    }

    fn new(port: u16, requests: [Words; 2], owner: usize) -> io::Result<Pair> {
        let id = id(&uuid::Uuid::new_v4().to_string(), 0);
        let [lock, unlock] = requests.map(|mut words| {
            words[owner] = id.clone().into_bytes();
            Template::new(&words, &[&id])
        });
        let mut pair = Pair { bare: Bare::connect(port)?, requests: [lock?, unlock?], turn: FIRST };
        pair.check()?;
        Ok(pair)
    }

    /// Locks and unlocks once.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        for half in 0..2 {
            self.write(half)?;
            self.read()?;
        }
        Ok(())
    }

    /// Sends one half: the lock (0), under a new number, or the unlock (1).
    pub(crate) fn write(&mut self, half: usize) -> io::Result<()> {
        self.turn += u64::from(half == 0);
        self.bare.write(self.requests[half].with(&[self.turn]))
    }

    /// Reads the reply to a half.
    pub(crate) fn read(&mut self) -> io::Result<()> {
        self.bare.read().map(drop)
    }

    /// Fails unless both requests succeed: a floor that does not lock would be too low.
    fn check(&mut self) -> io::Result<()> {
        for request in &mut self.requests {
            let reply = String::from_utf8_lossy(self.bare.exchange(request.with(&[self.turn]))?).into_owned();
            // Both replies begin with a number above 0, alone or in a list.
            let number = reply.lines().find_map(|line| line.strip_prefix(':')?.parse::<i64>().ok());
            let done = reply.starts_with("+OK") || number.is_some_and(|n| n > 0);
            if !done {
                return Err(io::Error::other(format!("a request of the floor was answered {reply:?}")));
            }
        }
        Ok(())
    }
}
