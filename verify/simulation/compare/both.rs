//! A real server, and the one in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionLike, cmd, from_redis_value};
use redis_concurrent_testkit::RedisServer;

use crate::engine::simulation::redis::{Data, Entry, Redis, Reply, Score, Sorted};

/// What a step does on both.
pub(super) struct Play {
    /// For the counts.
    pub(super) what: &'static str,
    /// The script's text, or how one command is run as one.
    pub(super) script: String,
    pub(super) args: Vec<String>,
    /// The reply is in no order.
    pub(super) any_order: bool,
}

/// Runs one command, `ARGV`.
pub(super) const COMMAND: &str = "return redis.pcall(unpack(ARGV))";
/// On whose lock everything happens: its keys, and another.
pub(super) const KEYS: [&str; 7] = [
    "rc:{it}",
    "rc:{it}:queue",
    "rc:{it}:positions",
    "rc:{it}:fence",
    "rc:{it}:tombstones",
    "rc:{it}:conditions",
    "redisson_lock_token:rc:{it}",
];
const MARK: &str = "mark";
/// How near an expiry has to be for a step not to be compared, in ms.
const NEAR: i64 = 5;

/// Runs a script, here `ARGV[1]`, with the time told before and afterwards, and with what is stored then.
const WITH_TIME: &str = "
local real, K, all = redis, KEYS, #KEYS
local T = real.call('TIME')
local at = T[1] * 1000 + math.floor(T[2] / 1000)
local function left()
  real.call('SET', K[all], '', 'PXAT', string.format('%.0f', at + 1000000))
  local ms = real.call('PTTL', K[all])
  real.call('DEL', K[all])
  return ms
end
local before = left()
local redis = setmetatable({call = function(c, ...)
  if c == 'TIME' then return {T[1], T[2]} end
  return real.call(c, ...)
end}, {__index = real})
local KEYS = {unpack(K, 1, 6)}
local function script()
--SCRIPT
end
local ok, answer = pcall(script)
if not ok then answer = {err = type(answer) == 'table' and answer.err or 'ERR ' .. tostring(answer)} end
if answer == nil then answer = false end
local stored = {}
for i = 1, all - 1 do
  local is = real.call('TYPE', K[i]).ok
  local holds = is == 'string' and {real.call('GET', K[i])} or is == 'hash' and real.call('HGETALL', K[i])
    or is == 'zset' and real.call('ZRANGE', K[i], 0, -1, 'WITHSCORES') or {}
  stored[i] = {is, real.call('PTTL', K[i]), holds}
end
real.call('PUBLISH', 'mark', 'mark')
return {T, before, left(), answer, stored}";

pub(super) struct Both {
    _server: RedisServer,
    con: Connection,
    ears: Connection,
    /// What both are subscribed to; the first: sharded.
    pub(super) hears: BTreeSet<(bool, String)>,
    pub(super) here: Redis,
    pub(super) old: bool,
    /// How long the memory took for all steps.
    pub(super) took: Duration,
    pub(super) compared: usize,
    pub(super) blurred: usize,
    pub(super) failed: bool,
}

/// What the server said about one step.
struct Seen {
    time: i64,
    before: i64,
    after: i64,
    answer: Reply,
    stored: Vec<Reply>,
    messages: Vec<(bool, Vec<u8>, Vec<u8>)>,
}

impl Both {
    pub(super) fn new() -> Both {
        let server = RedisServer::start().unwrap();
        let (mut con, mut ears) = (server.connection().unwrap(), server.connection().unwrap());
        let info: String = cmd("INFO").arg("server").query(&mut con).unwrap();
        let old = info.contains("redis_version:6.") && !info.contains("valkey");
        ears.send_packed_command(&cmd("SUBSCRIBE").arg(MARK).get_packed_command()).unwrap();
        ears.recv_response().unwrap();
        Both {
            _server: server,
            con,
            ears,
            hears: BTreeSet::new(),
            here: Redis::default(),
            old,
            took: Duration::ZERO,
            compared: 0,
            blurred: 0,
            failed: false,
        }
    }

    /// Empties both.
    pub(super) fn begin(&mut self) {
        cmd("FLUSHALL").exec(&mut self.con).unwrap();
        self.here.state.keys.keys.clear();
        self.here.state.old = self.old;
    }

    /// Subscribes both to a channel, or ends that.
    pub(super) fn listen(&mut self, sharded: bool, channel: &str) {
        let ends = !self.hears.insert((sharded, channel.to_owned()));
        if ends {
            self.hears.remove(&(sharded, channel.to_owned()));
        }
        let verb = [if sharded { "S" } else { "" }, if ends { "UN" } else { "" }, "SUBSCRIBE"].concat();
        self.ears.send_packed_command(&cmd(&verb).arg(channel).get_packed_command()).unwrap();
        self.ears.recv_response().unwrap();
        self.here.command(1, &[verb.into_bytes(), channel.as_bytes().to_vec()]);
    }

    fn on_server(&mut self, play: &Play) -> Seen {
        let script = WITH_TIME.replace("--SCRIPT", &play.script);
        let mut eval = cmd("EVAL");
        eval.arg(script).arg(KEYS.len() + 1).arg(&KEYS).arg("{it}probe").arg(&play.args);
        let answer = self.con.req_packed_command(&eval.get_packed_command()).unwrap();
        let messages = self.heard();
        let Reply::List(all) = answer.into() else { panic!("the step itself failed: {}", play.script) };
        let [time, before, after, answer, stored]: [Reply; 5] = all.try_into().unwrap();
        let (Reply::List(time), Reply::List(stored)) = (time, stored) else { panic!("lists") };
        let [s, us] = [&time[0], &time[1]].map(int);
        let at = s * 1000 + us / 1000 + 1_000_000;
        let [before, after] = [&before, &after].map(|left| at - int(left));
        Seen { time: s * 1_000_000 + us, before, after, answer, stored, messages }
    }

    /// The messages that have arrived, up to the mark.
    fn heard(&mut self) -> Vec<(bool, Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let (what, channel, text): (String, Vec<u8>, Vec<u8>) =
                from_redis_value(self.ears.recv_response().unwrap()).unwrap();
            if channel == MARK.as_bytes() {
                return all;
            }
            all.push((what == "smessage", channel, text));
        }
    }

    /// Plays a step on both, and compares them.
    pub(super) fn run(&mut self, play: &Play, which: &str) {
        let asked: Vec<i64> = cmd("TIME").query(&mut self.con).unwrap();
        let asked = asked[0] * 1000 + asked[1] / 1000;
        let seen = self.on_server(play);
        let state = &mut self.here.state;
        let near = |at: i64| (asked - NEAR..=seen.before + NEAR).contains(&at);
        if seen.before != seen.after || state.keys.keys.values().filter_map(|it| it.expires).any(near) {
            self.blurred += 1;
            return self.take_over();
        }
        (state.time, state.keys.now) = (seen.time, seen.before);
        let words = ["EVAL", &play.script, "6"].into_iter().chain(KEYS.into_iter().take(6));
        let words = words.chain(play.args.iter().map(String::as_str));
        let words: Vec<_> = words.map(|word| word.as_bytes().to_vec()).collect();
        let began = Instant::now();
        let mut answer = self.here.command(0, &words).pop().unwrap();
        self.took += began.elapsed();
        let mut there = seen.answer;
        if play.any_order {
            for reply in [&mut answer, &mut there] {
                // The last number may be that of the first holder.
                if let (Reply::List(items), "inspect") = (&mut *reply, play.what) {
                    items.drain(..items.len().min(1));
                }
                in_order(reply);
            }
        }
        self.failed = matches!(there, Reply::Error(_));
        let told = std::mem::take(&mut self.here.state.told);
        // Those of one step to several holders are in no order.
        let mut told: Vec<_> = told.into_iter().map(|it| (it.sharded, it.channel, it.text)).collect();
        let mut messages = seen.messages;
        told.sort();
        messages.sort();
        let what = || format!("{which}: {} {:?}", play.what, play.args);
        assert!(alike(&answer, &there), "{}: here {answer:?}, on the server {there:?}", what());
        assert_eq!(told, messages, "messages of {}", what());
        for (key, mut there) in KEYS.iter().zip(seen.stored) {
            let mut here = self.stored(key);
            in_order(&mut here);
            in_order(&mut there);
            assert_eq!(here, there, "{key} after {}", what());
        }
        self.compared += 1;
    }

    /// What is stored here, as the server's script says it.
    fn stored(&self, key: &str) -> Reply {
        let keys = &self.here.state.keys;
        let entry = keys.keys.get(key.as_bytes()).filter(|entry| entry.expires.is_none_or(|e| keys.now <= e));
        let (is, left, holds) = match entry {
            None => ("none", -2, Vec::new()),
            Some(Entry { data, expires }) => {
                let (is, holds) = match data {
                    Data::Text(text) => ("string", vec![text.clone()]),
                    Data::Hash(hash) => {
                        ("hash", hash.iter().flat_map(|(f, v)| [f.clone(), v.clone()]).collect())
                    }
                    Data::Sorted(all) => {
                        let texts = all.iter().flat_map(|(m, s)| [m.to_vec(), s.text().into_bytes()]);
                        ("zset", texts.collect())
                    }
                };
                (is, expires.map_or(-1, |ends| ends - keys.now), holds)
            }
        };
        let holds = Reply::List(holds.into_iter().map(Reply::Bulk).collect());
        Reply::List(vec![Reply::Bulk(is.into()), Reply::Int(left), holds])
    }

    /// Takes over what the server has, once it could be read within one millisecond.
    fn take_over(&mut self) {
        let nothing =
            Play { what: "nothing", script: "return 1".to_owned(), args: Vec::new(), any_order: false };
        let seen = loop {
            let seen = self.on_server(&nothing);
            if seen.before == seen.after {
                break seen;
            }
        };
        let keys = &mut self.here.state.keys;
        keys.keys.clear();
        for (key, stored) in KEYS.iter().zip(seen.stored) {
            let Reply::List(all) = stored else { panic!("what is stored") };
            let [Reply::Bulk(is), Reply::Int(left), Reply::List(holds)] = &all[..] else { panic!("{all:?}") };
            let holds: Vec<Vec<u8>> = holds.iter().map(bytes).collect();
            let (pairs, _) = holds.as_chunks::<2>();
            let data = match &is[..] {
                b"none" => continue,
                b"string" => Data::Text(holds[0].clone()),
                b"hash" => Data::Hash(pairs.iter().cloned().map(|[f, v]| (f, v)).collect::<BTreeMap<_, _>>()),
                _ => {
                    let mut sorted = Sorted::default();
                    pairs.iter().for_each(|[member, score]| {
                        sorted.set(member, Score::parse(score).unwrap());
                    });
                    Data::Sorted(sorted)
                }
            };
            let expires = (*left >= 0).then_some(seen.before + left);
            keys.keys.insert(key.as_bytes().to_vec(), Entry { data, expires });
        }
    }
}

fn int(reply: &Reply) -> i64 {
    match reply {
        Reply::Int(n) => *n,
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
        other => panic!("not a number: {other:?}"),
    }
}

fn bytes(reply: &Reply) -> Vec<u8> {
    let Reply::Bulk(bytes) = reply else { panic!("not a text: {reply:?}") };
    bytes.clone()
}

/// Sorts all lists.
fn in_order(reply: &mut Reply) {
    if let Reply::List(all) = reply {
        all.iter_mut().for_each(in_order);
        all.sort_by_key(|item| format!("{item:?}"));
    }
}

/// Whether both are the same; of errors, whether both are about the same.
fn alike(here: &Reply, there: &Reply) -> bool {
    match (here, there) {
        (Reply::Error(here), Reply::Error(there)) => {
            ["WRONGTYPE", "OOM"].iter().all(|code| here.contains(code) == there.contains(code))
        }
        (Reply::List(here), Reply::List(there)) => {
            here.len() == there.len() && here.iter().zip(there).all(|(here, there)| alike(here, there))
        }
        _ => here == there,
    }
}
