//! A lock that very many hold and wait for, and what each script takes there.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use redis::{Value, cmd, pipe};
use redis_concurrent_testkit::RedisServer;

use crate::rig::{PREFIX, RECORD, Rig, int, subscribe, texts};

/// The longest that a script may take of the server, in microseconds.
const LONGEST: u64 = 2_000;
/// The same with glibc's allocator, as one of ci/servers.sh is built: a script that allocates waits there for the
/// thread that frees what was unlinked. A walk over all holders takes longer than this, too.
const LONGEST_WITH_LIBC: u64 = 10_000;
pub const HOLDERS: usize = 20_000;
pub const WAITERS: usize = 10_000;
/// For how long a waiter may be silent, in ms: longer than it takes to have so many wait.
pub const WAITER_TIMEOUT: &str = "600000";
/// The same of a hold.
pub const LEASE: &str = "600000";
/// A thousand commands. On a machine that is slow, or shares its caches, a script may take [`MEASURES`] times as long as this
/// takes in the same run: one that walks over all holders takes far longer.
const MEASURE: &str = "for _ = 1, 1000 do redis.call('EXISTS', KEYS[1]) end return {}";
const MEASURES: u64 = 2;
/// After so many scripts a thing that is done in pieces is done.
const PIECES: usize = 20_000;

/// The lock, and what its scripts took.
pub struct Many {
    pub rig: Rig,
    server: RedisServer,
    /// By what the scripts were for: what each took, in microseconds.
    took: BTreeMap<&'static str, Vec<u64>>,
    shas: BTreeMap<String, String>,
}

impl Deref for Many {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl DerefMut for Many {
    fn deref_mut(&mut self) -> &mut Rig {
        &mut self.rig
    }
}

/// The `n`th owner of the client `who`.
pub fn id(who: &str, n: usize) -> String {
    format!("{who}:{n}")
}

/// The arguments of an acquire.
pub fn asks<'a>(how: &'a str, owner: &'a str, args: &'a str) -> Vec<&'a str> {
    vec![owner, LEASE, PREFIX, WAITER_TIMEOUT, how, args, RECORD]
}

pub fn owned(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

impl Many {
    pub fn of(kind: &'static str, rule: &str) -> Many {
        // Every script is in the log, with its time.
        let server = RedisServer::builder().arg("slowlog-log-slower-than", "0").start().unwrap();
        let rig = Rig::of(&server, kind, rule, "it");
        Many { rig, server, took: BTreeMap::new(), shas: BTreeMap::new() }
    }

    /// The client `who` is there to be told.
    pub fn hears(&self, who: &str) -> redis::Connection {
        subscribe(&self.server, who)
    }

    fn sha(&mut self, source: &str) -> String {
        if let Some(sha) = self.shas.get(source) {
            return sha.clone();
        }
        let sha: String = cmd("SCRIPT").arg("LOAD").arg(source).query(&mut self.rig.con).unwrap();
        self.shas.insert(source.to_owned(), sha.clone());
        sha
    }

    /// Runs a script, and notes what it took by the server's own log; less what the machine gave to others
    /// meanwhile.
    pub fn run(&mut self, what: &'static str, source: &str, args: &[&str]) -> Value {
        let (sha, keys) = (self.sha(source), self.rig.keys.clone());
        let mut all = pipe();
        all.cmd("INFO").arg("cpu").cmd("EVALSHA").arg(sha).arg(keys.len()).arg(&keys).arg(args);
        all.cmd("INFO").arg("cpu").cmd("SLOWLOG").arg("GET").arg(4);
        let [before, answer, after, log]: [Value; 4] =
            all.query::<Vec<Value>>(&mut self.rig.con).unwrap().try_into().unwrap();
        let took = logged(&log).min(processor(&after) - processor(&before));
        self.took.entry(what).or_default().push(took);
        answer
    }

    /// Runs these scripts with these arguments, unmeasured.
    pub fn fill(&mut self, all: impl Iterator<Item = (String, Vec<String>)>) {
        let keys = self.rig.keys.clone();
        let all: Vec<_> = all.map(|(source, args)| (self.sha(&source), args)).collect();
        for some in all.chunks(200) {
            let mut pipe = pipe();
            for (sha, args) in some {
                pipe.cmd("EVALSHA").arg(sha).arg(keys.len()).arg(&keys).arg(args).ignore();
            }
            let () = pipe.query(&mut self.rig.con).unwrap();
        }
    }

    /// So many owners of the client `who` ask.
    pub fn many(&mut self, how: &str, who: &str, n: usize, args: &str) {
        let source = self.scripts.acquire.clone();
        self.fill((0..n).map(|i| (source.clone(), owned(&asks(how, &id(who, i), args)))));
    }

    pub fn ask(&mut self, what: &'static str, how: &str, owner: &str, args: &str) -> Vec<String> {
        let source = self.scripts.acquire.clone();
        let answer = texts(&self.run(what, &source, &asks(how, owner, args)));
        if answer.len() == 1 { vec!["1".into(), answer[0].clone()] } else { answer }
    }

    pub fn leaves(&mut self, what: &'static str, owner: &str) -> String {
        let source = self.scripts.leave.clone();
        texts(&self.run(what, &source, &[owner, "0", PREFIX, WAITER_TIMEOUT, "1"])).remove(0)
    }

    pub fn renews(&mut self, what: &'static str, owner: &str) -> i64 {
        let source = self.scripts.renew.clone();
        int(&texts(&self.run(what, &source, &[owner, LEASE, PREFIX, WAITER_TIMEOUT]))[0])
    }

    pub fn changes(&mut self, what: &'static str, id: &str, args: &[&str]) -> Vec<String> {
        let source = self.scripts.update.clone().unwrap();
        texts(&self.run(what, &source, &[&[id, "0", PREFIX, WAITER_TIMEOUT], args].concat()))
    }

    /// Page after page: how many holders there are, how many wait, and what the rule says of its state.
    pub fn looks(&mut self, what: &'static str, args: &str) -> (usize, usize, Vec<String>) {
        let source = self.scripts.inspect.clone();
        let (mut holders, mut positions, mut state) = (0, 0, Vec::new());
        let mut page = String::new();
        for _ in 0..PIECES {
            let answer = self.run(what, &source, &["", "0", PREFIX, WAITER_TIMEOUT, &page, args]);
            let Value::Array(items) = answer else { panic!("{answer:?}") };
            holders += texts(&items[1]).len() / 3;
            positions += texts(&items[2]).len() / 2;
            state.extend(texts(&items[3]));
            let Some(next) = items.get(4) else { return (holders, positions, state) };
            page = texts(next).remove(0);
        }
        panic!("{what}: it has no end");
    }

    /// Asks until it is so.
    pub fn until(&mut self, what: &'static str, mut step: impl FnMut(&mut Many, usize) -> bool) {
        assert!((0..PIECES).any(|n| step(self, n)), "{what} has no end");
    }

    fn longest(&mut self) -> u64 {
        let memory: String = cmd("INFO").arg("memory").query(&mut self.rig.con).unwrap();
        let bound = if memory.contains("mem_allocator:libc") { LONGEST_WITH_LIBC } else { LONGEST };
        const WHAT: &str = "a thousand commands";
        for _ in 0..50 {
            self.run(WHAT, MEASURE, &[]);
        }
        let measure = self.took.remove(WHAT).map_or(0, longest_of);
        println!("{WHAT}: {measure}");
        bound.max(MEASURES * measure)
    }

    /// The first in the queue sends heartbeats, as it is told to, until nobody waits.
    pub fn until_nobody_waits(&mut self, what: &'static str, args: &str) {
        self.until(what, |it, _| {
            let head: Vec<String> = cmd("ZRANGE").arg(&it.keys[1]).arg(0).arg(0).query(&mut it.con).unwrap();
            let Some(head) = head.first() else { return true };
            it.ask(what, "keep", head, args);
            false
        });
    }

    /// All holds lapsed a second ago; what a barrier or a lock of one holder has is not among them.
    pub fn all_lapse(&mut self) {
        let source = "local ms, all = ARGV[1] / 1000 - 1000, redis.call('HGETALL', KEYS[1])
            for i = 1, #all, 2 do
                if string.find(all[i], ':', 1, true) and not string.find(all[i], '|', 1, true) then
                    local entry = cmsgpack.unpack(all[i + 1])
                    entry[1] = math.floor(ms)
                    redis.call('HSET', KEYS[1], all[i], cmsgpack.pack(entry))
                    if ARGV[2] == 'ends' then redis.call('ZADD', KEYS[6], math.floor(ms), all[i]) end
                elseif all[i] == 'soon' then
                    redis.call('HSET', KEYS[1], 'soon', string.format('%.0f', ms))
                end
            end
            return {}";
        let now = self.now().to_string();
        let ends = if self.kind == "read-write" { "" } else { "ends" };
        self.rig.eval(source, &[&now, ends]).unwrap();
    }

    /// No waiter has sent a heartbeat for so long; or only one of each is overdue.
    pub fn all_are_silent(&mut self, long: bool) {
        let source = "local all = redis.call('HGETALL', KEYS[3])
            for i = 1, #all, 2 do
                if all[i] ~= 'signalled' then
                    local p = cmsgpack.unpack(all[i + 1])
                    -- And each had its waiter timeout once more.
                    p[2], p[6], p[7] = p[2] - ARGV[1], p[6] or false, p[7] or false
                    if ARGV[1] == '1000000000' then p[8] = false end
                    redis.call('HSET', KEYS[3], all[i], cmsgpack.pack(p))
                end
            end
            return {}";
        self.rig.eval(source, &[if long { "1000000000" } else { "400000000" }]).unwrap();
    }

    pub fn waiting(&mut self) -> usize {
        cmd("ZCARD").arg(&self.keys[1]).query(&mut self.con).unwrap()
    }
}

/// One game at a time: they would only be in each other's way.
static GAME: Mutex<()> = Mutex::new(());

/// No script of this game takes long. A busy machine may be in the way of some: the game is played again then, in which each
/// script does what it did before, and the less of its times counts.
pub fn in_short(turn: impl Fn() -> Many) {
    let _alone = GAME.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut least, mut bound) = (BTreeMap::<_, Vec<u64>>::new(), 0);
    let mut longest = BTreeMap::new();
    for _ in 0..5 {
        let mut it = turn();
        bound = it.longest().max(bound);
        for (what, took) in it.took {
            let least = least.entry(what).or_default();
            least.resize(least.len().max(took.len()), u64::MAX);
            least.iter_mut().zip(took).for_each(|(least, took)| *least = took.min(*least));
        }
        longest = least.iter().map(|(what, all)| (*what, longest_of(all.clone()))).collect();
        println!("{}: {longest:?}", it.rig.kind);
        if longest.values().all(|longest| *longest <= bound) {
            return;
        }
    }
    panic!("longer than {bound}, in µs: {longest:?}");
}

/// The longest of these times, without those that the machine may have disturbed: one of a hundred.
fn longest_of(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() - 1 - all.len() / 100]
}

/// The time of the script that the log has last.
fn logged(log: &Value) -> u64 {
    let Value::Array(entries) = log else { panic!("{log:?}") };
    let is_script = |entry: &&Vec<Value>| {
        let Value::Array(words) = &entry[3] else { panic!("{entry:?}") };
        matches!(&words[0], Value::BulkString(verb) if verb == b"EVALSHA")
    };
    let entries =
        entries.iter().map(|entry| if let Value::Array(it) = entry { it } else { panic!("{entry:?}") });
    match entries.into_iter().find(is_script).map(|entry| entry[2].clone()) {
        Some(Value::Int(took)) => took.try_into().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The processor's time of the server's thread by then, or of the whole server, where it is not told apart; in
/// microseconds.
fn processor(info: &Value) -> u64 {
    let info: String = redis::from_redis_value(info.clone()).unwrap();
    let seconds = |name: &str| {
        let time =
            |suffix: &str| info.lines().find_map(|line| line.strip_prefix(&format!("{name}{suffix}:")));
        time("_main_thread").or_else(|| time("")).unwrap().trim().parse::<f64>().unwrap()
    };
    ((seconds("used_cpu_sys") + seconds("used_cpu_user")) * 1e6) as u64
}
