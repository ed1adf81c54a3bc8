//! A Redis in memory: its commands, as far as the library and its scripts use them, in Rust, and the deployed scripts of
//! `lua/` themselves, in Lua 5.1. It has neither a clock nor connections of its own: the time is set before each
//! command, and what was published is collected afterwards.
//!
//! That it does what a server does is not taken on trust: `compare/` plays random commands and scripts on both.

mod commands;
mod hashes;
mod keyspace;
mod lua;
mod msgpack;
mod reply;
mod scan;
mod sorted;
mod sorted_sets;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use self::commands::{SYNTAX, integer, is, known};
#[cfg(not(shuttle))]
pub(crate) use self::keyspace::Entry;
pub(crate) use self::keyspace::{Data, Keyspace};
use self::reply::Answer;
pub(crate) use self::reply::Reply;
#[cfg(not(shuttle))]
pub(crate) use self::sorted::{Score, Sorted};

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// A message on its way to a subscriber.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) connection: u64,
    pub(crate) sharded: bool,
    pub(crate) channel: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

/// What the commands work on.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) keys: Keyspace,
    /// What `TIME` returns, in µs since 1970.
    pub(crate) time: i64,
    /// The subscribers of each channel, those of a sharded one apart.
    channels: BTreeMap<(bool, Vec<u8>), BTreeSet<u64>>,
    pub(crate) told: Vec<Told>,
    /// What was published on sharded channels, which a replica tells its own subscribers.
    pub(crate) published: Vec<[Vec<u8>; 2]>,
    /// The memory is full.
    pub(crate) full: bool,
    /// A server before 7.0, without sharded channels.
    pub(crate) old: bool,
    /// The script that runs has written.
    has_written: bool,
}

/// One server.
#[derive(Debug, Default)]
pub(crate) struct Redis {
    pub(crate) state: State,
    scripts: BTreeSet<String>,
}

impl State {
    /// Runs a command of a script.
    fn call(&mut self, args: &[Vec<u8>]) -> Reply {
        let answer = self.answer(args, self.has_written);
        answer.unwrap_or_else(Reply::Error)
    }

    /// Runs a command; `may_grow`: even if the memory is full.
    fn answer(&mut self, args: &[Vec<u8>], may_grow: bool) -> Answer {
        let name = args.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        if let Some(known) = known(&name) {
            if args.len() < known.words {
                let name = String::from_utf8_lossy(&name).to_lowercase();
                return Err(format!("ERR wrong number of arguments for '{name}' command"));
            }
            if known.grows && self.full && !may_grow {
                return Err(FULL.to_owned());
            }
            self.has_written |= known.writes;
            return (known.run)(&mut self.keys, args);
        }
        match (name.as_slice(), &args[1..]) {
            (b"TIME", []) => {
                Ok(Reply::bulks([self.time / 1_000_000, self.time % 1_000_000].map(|n| n.to_string())))
            }
            (b"PUBLISH", [channel, text]) => Ok(self.publish(false, channel, text)),
            (b"SPUBLISH", [channel, text]) if !self.old => Ok(self.publish(true, channel, text)),
            (b"PUBSUB", [what, channels @ ..]) if is(what, "NUMSUB") => Ok(self.listeners(false, channels)),
            (b"PUBSUB", [what, channels @ ..]) if is(what, "SHARDNUMSUB") && !self.old => {
                Ok(self.listeners(true, channels))
            }
            (b"PUBSUB", _) => Err("ERR Unknown subcommand or wrong number of arguments".to_owned()),
            // The scripts go by this text.
            _ => Err("ERR Unknown Redis command called from script".to_owned()),
        }
    }

    fn subscribers(&self, sharded: bool, channel: &[u8]) -> impl Iterator<Item = u64> {
        self.channels.get(&(sharded, channel.to_vec())).into_iter().flatten().copied()
    }

    pub(crate) fn publish(&mut self, sharded: bool, channel: &[u8], text: &[u8]) -> Reply {
        if sharded {
            self.published.push([channel.to_vec(), text.to_vec()]);
        }
        let to: Vec<u64> = self.subscribers(sharded, channel).collect();
        let told = |connection| Told { connection, sharded, channel: channel.to_vec(), text: text.to_vec() };
        self.told.extend(to.iter().map(|connection| told(*connection)));
        Reply::count(to.len())
    }

    fn listeners(&self, sharded: bool, channels: &[Vec<u8>]) -> Reply {
        let count = |channel| Reply::count(self.subscribers(sharded, channel).count());
        let counts = channels.iter().flat_map(|channel| [Reply::bulk(channel.clone()), count(channel)]);
        Reply::List(counts.collect())
    }
}

impl Redis {
    /// Runs a command of a connection. Returns its replies: one for each channel of a subscription, one for any other
    /// command.
    pub(crate) fn command(&mut self, connection: u64, args: &[Vec<u8>]) -> Vec<Reply> {
        let name = args.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
        let ends = matches!(name.as_slice(), b"UNSUBSCRIBE" | b"SUNSUBSCRIBE");
        if ends || matches!(name.as_slice(), b"SUBSCRIBE" | b"SSUBSCRIBE") {
            let sharded = name.starts_with(b"SS") || name.starts_with(b"SU") && name != b"SUBSCRIBE";
            return args[1..].iter().map(|channel| self.listen(connection, sharded, channel, ends)).collect();
        }
        let answer = match (name.as_slice(), &args[1..]) {
            (b"EVALSHA", [sha, rest @ ..]) => self.run(&String::from_utf8_lossy(sha), rest),
            (b"EVAL", [source, rest @ ..]) => self.load(source).and_then(|sha| self.run(&sha, rest)),
            (b"SCRIPT", [what, source]) if is(what, "LOAD") => self.load(source).map(Reply::bulk),
            (b"PING", []) => Ok(Reply::Status("PONG".to_owned())),
            _ => self.state.answer(args, false),
        };
        vec![answer.unwrap_or_else(Reply::Error)]
    }

    fn listen(&mut self, connection: u64, sharded: bool, channel: &[u8], ends: bool) -> Reply {
        let all = self.state.channels.entry((sharded, channel.to_vec())).or_default();
        let _ = if ends { all.remove(&connection) } else { all.insert(connection) };
        let of_its_kind = |((its, _), all): &(&(bool, Vec<u8>), &BTreeSet<u64>)| {
            *its == sharded && all.contains(&connection)
        };
        let n = self.state.channels.iter().filter(of_its_kind).count();
        let what = [if sharded { "s" } else { "" }, if ends { "unsubscribe" } else { "subscribe" }].concat();
        Reply::List(vec![Reply::bulk(what), Reply::bulk(channel), Reply::count(n)])
    }

    fn load(&mut self, source: &[u8]) -> Result<String, String> {
        let sha = lua::compile(source)?;
        self.scripts.insert(sha.clone());
        Ok(sha)
    }

    fn run(&mut self, sha: &str, args: &[Vec<u8>]) -> Answer {
        let n = args.first().ok_or(SYNTAX).map(|n| integer(n))??;
        let args = &args[1..];
        let n = usize::try_from(n).ok().filter(|n| *n <= args.len());
        let (keys, args) = args.split_at(n.ok_or("ERR Number of keys can't be greater than number of args")?);
        let sha = sha.to_lowercase();
        if !self.scripts.contains(&sha) {
            return Err(NO_SCRIPT.to_owned());
        }
        self.state.has_written = false;
        let (state, answer) = lua::run(&sha, mem::take(&mut self.state), keys, args);
        self.state = state;
        answer
    }
}

/// What only a simulated server goes through.
#[cfg(shuttle)]
impl Redis {
    /// Sets the time, in µs since 1970.
    pub(crate) fn set_time(&mut self, time: i64) {
        self.state.time = time;
        self.state.keys.now = time / 1000;
    }

    /// Forgets everything that is not on disk.
    pub(crate) fn restart(&mut self) {
        self.scripts.clear();
        self.state.channels.clear();
        self.state.told.clear();
    }

    pub(crate) fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Ends the subscriptions to the sharded channels for which this holds; returns each with its subscriber.
    pub(crate) fn ends_channels(&mut self, of_it: impl Fn(&[u8]) -> bool) -> Vec<(u64, Vec<u8>)> {
        let ends = |(sharded, channel): &(bool, Vec<u8>)| *sharded && of_it(channel);
        let ended = self.state.channels.extract_if(.., |channel, _| ends(channel));
        ended.flat_map(|((_, channel), all)| all.into_iter().map(move |it| (it, channel.clone()))).collect()
    }

    /// Ends a connection's subscriptions.
    pub(crate) fn hang_up(&mut self, connection: u64) {
        self.state.channels.values_mut().for_each(|all| {
            all.remove(&connection);
        });
        self.state.told.retain(|told| told.connection != connection);
    }
}
