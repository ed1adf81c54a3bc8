//! A lock below the client: its scripts run directly against a server, and what they stored. Time is
//! simulated by editing that, never by sleeping.

// Each test binary uses only part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;
use redis::{Commands, Connection, RedisResult, Value, cmd};
use redis_concurrent_testkit::{RedisServer, ScriptTexts, scripts};

pub use crate::shared::server;
use crate::support::{Content, content};

pub const PREFIX: &str = "rc:inbox:";
pub const LEASE: i64 = 30_000;
pub const WAITER_TIMEOUT: i64 = 3_000;
/// So long after its last heartbeat, a waiter that does not listen is no longer waited for.
pub const OVERDUE: i64 = WAITER_TIMEOUT / 2 + 1;
/// For how long a message grants, until the first renewal.
pub const FIRST: i64 = WAITER_TIMEOUT;
/// The form of a record, which the scripts only pass on.
pub const RECORD: &str = "1 4711 host label";
/// 2020-01-01 in microseconds since 1970.
pub const EPOCH: i64 = 1_577_836_800_000_000;

/// Returns a server that rejects what needs memory once it is full.
pub fn server_that_fills() -> RedisServer {
    RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap()
}

/// A lock, and its operations.
pub struct Rig {
    pub kind: &'static str,
    pub scripts: &'static ScriptTexts,
    pub keys: [String; 6],
    pub con: Connection,
    /// The part that the owner ids of a test have in common: every test has clients of its own.
    pub name: String,
}

/// The scripts over this rule, linked once: there are thousands of rigs.
pub fn linked(rule: &str) -> &'static ScriptTexts {
    static LINKED: Mutex<BTreeMap<String, &ScriptTexts>> = Mutex::new(BTreeMap::new());
    LINKED.lock().entry(rule.to_owned()).or_insert_with(|| Box::leak(Box::new(scripts(rule).unwrap())))
}

/// The arguments of an acquire that matter to a test.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub lease: i64,
    pub waiter_timeout: i64,
    pub args: &'a str,
    pub arrival: &'a str,
    /// A hold in another mode, beside or in place of which the owner wants to get in.
    pub from: &'a str,
    pub instead: bool,
    pub priority: &'a str,
    /// How many threads may wait before the owner.
    pub most: &'a str,
}

pub const USUAL: Ask<'_> = Ask {
    lease: LEASE,
    waiter_timeout: WAITER_TIMEOUT,
    args: "1",
    arrival: "",
    from: "",
    instead: false,
    priority: "",
    most: "",
};

impl Rig {
    pub fn of(server: &RedisServer, kind: &'static str, rule: &str, name: &str) -> Rig {
        let name = format!("{name}-{}", kind.replace(' ', "-"));
        let state = format!("rc:{{{name}}}");
        let keys = ["", ":queue", ":positions", ":fence", ":tombstones", ":conditions"]
            .map(|suffix| format!("{state}{suffix}"));
        Rig { kind, scripts: linked(rule), keys, con: server.connection().unwrap(), name }
    }

    /// Returns the `n`th owner id of the client `who`.
    pub fn id(&self, who: &str, n: u64) -> String {
        format!("{}-{who}:{n}", self.name)
    }

    pub fn a(&self) -> String {
        self.id("a", 1)
    }

    pub fn b(&self) -> String {
        self.id("b", 1)
    }

    pub fn c(&self) -> String {
        self.id("c", 1)
    }

    pub fn eval(&mut self, source: &str, args: &[&str]) -> RedisResult<Vec<String>> {
        let mut eval = cmd("EVAL");
        eval.arg(source).arg(self.keys.len()).arg(&self.keys).arg(args);
        Ok(texts(&eval.query::<Value>(&mut self.con)?))
    }

    pub fn acquire(&mut self, how: &str, owner: &str, ask: Ask<'_>) -> RedisResult<Vec<String>> {
        let source = self.scripts.acquire.clone();
        let (lease, waiter_timeout) = (ask.lease.to_string(), ask.waiter_timeout.to_string());
        let mut args =
            vec![owner, &lease, PREFIX, &waiter_timeout, how, ask.args, RECORD, ask.from, ask.arrival];
        args.extend([if ask.instead { "1" } else { "" }, ask.priority, ask.most]);
        args.truncate(args.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1));
        let mut answer = self.eval(&source, &args)?;
        is_deaf(&mut answer, 0);
        // A mere number: admitted, with the whole lease.
        Ok(if let [number] = &*answer { vec!["1".to_owned(), number.clone(), lease] } else { answer })
    }

    pub fn try_(&mut self, owner: &str) -> Vec<String> {
        self.acquire("try", owner, USUAL).unwrap()
    }

    pub fn wait(&mut self, owner: &str) -> Vec<String> {
        self.acquire("wait", owner, USUAL).unwrap()
    }

    pub fn keep(&mut self, owner: &str) -> Vec<String> {
        self.acquire("keep", owner, USUAL).unwrap()
    }

    pub fn leave(&mut self, owner: &str) -> Vec<String> {
        let source = self.scripts.leave.clone();
        self.eval(&source, &[owner, "0", PREFIX, "3000"]).unwrap()
    }

    pub fn leave_unsettled(&mut self, owner: &str) -> RedisResult<Vec<String>> {
        let source = self.scripts.leave.clone();
        self.eval(&source, &[owner, "0", PREFIX, "3000", "1"])
    }

    pub fn leave_next(&mut self, owner: &str, unsettled: bool, next: &str) -> RedisResult<Vec<String>> {
        self.leave_for(owner, unsettled, next, "1")
    }

    /// Leaves, with a request for the next owner with these `args`.
    pub fn leave_for(
        &mut self,
        owner: &str,
        unsettled: bool,
        next: &str,
        args: &str,
    ) -> RedisResult<Vec<String>> {
        let source = self.scripts.leave.clone();
        let unsettled = if unsettled { "1" } else { "" };
        let mut answer =
            self.eval(&source, &[owner, "30000", PREFIX, "3000", unsettled, args, RECORD, next])?;
        is_deaf(&mut answer, 1);
        Ok(answer)
    }

    pub fn renew(&mut self, owner: &str, lease: i64) -> RedisResult<Vec<String>> {
        let source = self.scripts.renew.clone();
        self.eval(&source, &[owner, &lease.to_string(), PREFIX, "3000"])
    }

    /// Applies a user's request with this `id` to the state.
    pub fn update(&mut self, id: &str, what: &[&str]) -> RedisResult<Vec<String>> {
        let source = self.scripts.update.clone().expect("a rule with a kind.update");
        self.eval(&source, &[&[id, "0", PREFIX, "3000"], what].concat())
    }

    /// Transfers what `from` has to `owner`, which is another process with a record of its own.
    pub fn adopt(&mut self, owner: &str, from: &str) -> RedisResult<Vec<String>> {
        let source = self.scripts.adopt.clone().expect("a rule with a kind.transfer");
        self.eval(&source, &[owner, "20000", PREFIX, "3000", from, "", "0 1 there other"])
    }

    pub fn inspect(&mut self) -> RedisResult<Vec<Vec<String>>> {
        self.inspect_as("")
    }

    /// Inspects as one mode of a lock of several modes sees it; joins all pages.
    pub fn inspect_as(&mut self, args: &str) -> RedisResult<Vec<Vec<String>>> {
        let (mut all, mut page) = (vec![Vec::new(); 4], String::new());
        loop {
            let mut eval = cmd("EVAL");
            eval.arg(&self.scripts.inspect)
                .arg(self.keys.len())
                .arg(&self.keys)
                .arg(["", "0", PREFIX, "3000", &page, args].as_slice());
            let answer = eval.query::<Value>(&mut self.con)?;
            let Value::Array(items) = answer else { panic!("inspect answered {answer:?}") };
            all[0] = texts(&items[0]);
            for i in 1..4 {
                all[i].extend(texts(&items[i]));
            }
            match items.get(4) {
                Some(next) => page = texts(next).remove(0),
                None => return Ok(all),
            }
        }
    }

    /// Subscribes to the inbox of the client `who`.
    pub fn inbox(&self, server: &RedisServer, who: &str) -> Connection {
        subscribe(server, &format!("{}-{who}", self.name))
    }

    /// Makes the server's memory full, or no longer full.
    pub fn full(&mut self, on: bool) {
        let _: () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(u8::from(on)).query(&mut self.con).unwrap();
    }

    /// Checks that with the memory full a newcomer is rejected, and nothing of the lock is stored.
    #[track_caller]
    pub fn has_no_room_for(&mut self, how: &str, owner: &str, ask: Ask<'_>) {
        let what = format!("{} {how} {}", self.kind, ask.args);
        let error = self.acquire(how, owner, ask).unwrap_err().to_string();
        assert!(error.contains("OOM") || error.contains("maxmemory"), "{what}: {error}");
        assert!(self.our_keys().is_empty(), "{what}: nothing half-written");
    }

    // ---- inspecting, and simulating time

    pub fn exists(&mut self, i: usize) -> bool {
        self.con.exists(&self.keys[i]).unwrap()
    }

    pub fn pttl(&mut self, i: usize) -> i64 {
        self.con.pttl(&self.keys[i]).unwrap()
    }

    pub fn fence(&mut self) -> i64 {
        let number: Option<i64> = self.con.get(&self.keys[3]).unwrap();
        number.unwrap_or(0)
    }

    pub fn queue(&mut self) -> Vec<String> {
        self.con.zrange(&self.keys[1], 0, -1).unwrap()
    }

    /// Returns {lease, heartbeat, waiter timeout, args, record}.
    pub fn position(&mut self, owner: &str) -> Vec<String> {
        let source = "local p = cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[1]))
            p[2] = string.format('%.0f', p[2])
            for i = 1, 5 do p[i] = tostring(p[i]) end
            return p";
        self.eval(source, &[owner]).unwrap()
    }

    /// Makes the queue position look as if it had not been heard of for `ms` longer, nor in its second waiter
    /// timeout if that is too long.
    pub fn age_position(&mut self, owner: &str, ms: i64) {
        let source = "local p = cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[1]))
            p[2] = p[2] - ARGV[2] * 1000
            if ARGV[2] + 0 > p[3] + 0 then p[8] = false end
            redis.call('HSET', KEYS[3], ARGV[1], cmsgpack.pack(p))
            return {}";
        self.eval(source, &[owner, &ms.to_string()]).unwrap();
    }

    /// Makes these look as if they had been heard for `ms` without a gap, and last that long ago: as if the
    /// server had stood still for that time.
    pub fn stand_still(&mut self, owners: &[&str], ms: i64) {
        let source = "for i = 2, #ARGV do
              local p = cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[i]))
              p[2], p[8] = p[2] - ARGV[1] * 1000, p[2] - ARGV[1] * 2000
              redis.call('HSET', KEYS[3], ARGV[i], cmsgpack.pack(p))
            end
            return {}";
        self.eval(source, &[&[&*ms.to_string()], owners].concat()).unwrap();
    }

    /// Makes these look as if they had been heard without a gap for `ms`.
    pub fn steady(&mut self, owners: &[&str], ms: i64) {
        let source = "for i = 2, #ARGV do
              local p = cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[i]))
              p[8] = p[2] - ARGV[1] * 1000
              redis.call('HSET', KEYS[3], ARGV[i], cmsgpack.pack(p))
            end
            return {}";
        self.eval(source, &[&[&*ms.to_string()], owners].concat()).unwrap();
    }

    /// Makes the owner's hold expire in `ms`, or look expired if that is not positive.
    pub fn set_lease(&mut self, owner: &str, ms: i64) {
        if ["read-write", "semaphore"].contains(&self.kind) {
            let source = "local ends = math.floor(ARGV[2] / 1000) + ARGV[3]
                local entry = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
                entry[1] = ends
                redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(entry))
                local soon = redis.call('HGET', KEYS[1], 'soon')
                if soon then
                    redis.call('HSET', KEYS[1], 'soon', string.format('%.0f', math.min(ends, soon)))
                else
                    redis.call('ZADD', KEYS[6], string.format('%.0f', ends), ARGV[1])
                end
                return {}";
            let now = self.now().to_string();
            self.eval(source, &[owner, &now, &ms.to_string()]).unwrap();
        } else if self.kind == "bulkhead" {
            let ends = self.now() / 1000 + ms;
            let _: () = self.con.zadd(&self.keys[0], owner, ends).unwrap();
        } else {
            let _: () = self.con.pexpire(&self.keys[0], ms).unwrap();
        }
    }

    /// Returns how long the owner's hold lasts; `None` if it has none.
    pub fn left(&mut self, owner: &str) -> Option<i64> {
        match self.kind {
            "read-write" => {
                let source = "local entry = redis.call('HGET', KEYS[1], ARGV[1])
                    return entry and {math.ceil(cmsgpack.unpack(entry)[1] - ARGV[2] / 1000)} or {}";
                let now = self.now().to_string();
                self.eval(source, &[owner, &now]).unwrap().first().map(|left| int(left))
            }
            "bulkhead" => {
                let ends: Option<i64> = self.con.zscore(&self.keys[0], owner).unwrap();
                Some(ends? - self.now() / 1000).filter(|left| *left > 0)
            }
            "reentrant" => {
                let held: Option<String> = self.con.hget(&self.keys[0], "owner").unwrap();
                held.filter(|it| it == owner).map(|_| self.pttl(0))
            }
            _ => {
                let held: Option<String> = self.con.get(&self.keys[0]).unwrap();
                held.filter(|it| it == owner).map(|_| self.pttl(0))
            }
        }
    }

    /// Returns microseconds since 2020 by the server's clock.
    pub fn now(&mut self) -> i64 {
        let (s, us): (i64, i64) = cmd("TIME").query(&mut self.con).unwrap();
        s * 1_000_000 + us - EPOCH
    }

    /// Returns every key of this lock with its content, without times to live.
    pub fn everything(&mut self) -> Vec<(String, Option<Content>)> {
        let mut all = Vec::new();
        for key in self.keys.clone() {
            let content = content(&mut self.con, &key);
            all.push((key, content));
        }
        all
    }

    /// Returns the fields of the lock's state, sorted.
    pub fn fields(&mut self) -> Vec<String> {
        let mut fields: Vec<String> = self.con.hkeys(&self.keys[0]).unwrap();
        fields.sort();
        fields
    }

    pub fn our_keys(&mut self) -> Vec<usize> {
        (0..5).filter(|i| self.exists(*i)).collect()
    }
}

/// A rig, and what else the tests of a kind `K` use. Their own operations take precedence over the rig's.
pub struct Fixture<T, K = ()> {
    pub rig: Rig,
    pub props: T,
    kind: PhantomData<K>,
}

impl<T, K> Fixture<T, K> {
    pub fn new(rig: Rig, props: T) -> Fixture<T, K> {
        Fixture { rig, props, kind: PhantomData }
    }
}

impl<K> Fixture<RedisServer, K> {
    /// Returns how often the server has run this command.
    pub fn calls(&mut self, command: &str) -> u64 {
        self.props.command_calls().unwrap().get(command).copied().unwrap_or(0)
    }
}

impl<T, K> Deref for Fixture<T, K> {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl<T, K> DerefMut for Fixture<T, K> {
    fn deref_mut(&mut self) -> &mut Rig {
        &mut self.rig
    }
}

/// Returns integers as text, so that a number and its text count as the same reply.
pub fn texts(value: &Value) -> Vec<String> {
    let one = |v: &Value| match v {
        Value::Int(n) => n.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("a script answered {other:?}"),
    };
    match value {
        Value::Array(items) => items.iter().map(one).collect(),
        other => vec![one(other)],
    }
}

pub fn int(text: &str) -> i64 {
    text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// Removes from a busy reply, which begins at `from`, that nobody listens for the caller: in these tests,
/// nobody does for most callers. Returns whether it was there.
pub fn is_deaf(answer: &mut Vec<String>, from: usize) -> bool {
    let is = answer.len() == from + 5 && answer[from] == "0" && answer[from + 4] == "1";
    if is {
        answer.pop();
    }
    is
}

/// Subscribes to the inbox of the client with this id.
pub fn subscribe(server: &RedisServer, client: &str) -> Connection {
    let mut con = server.connection().unwrap();
    let channel = format!("{PREFIX}{client}");
    con.send_packed_command(&cmd("SUBSCRIBE").arg(channel).get_packed_command()).unwrap();
    con.recv_response().unwrap();
    con
}

pub fn next_message(inbox: &mut Connection) -> String {
    let (_, _, text): (String, String, String) =
        redis::from_redis_value(inbox.recv_response().unwrap()).unwrap();
    text
}

/// Returns the payloads that have arrived, up to a mark that is published last.
pub fn received(server: &RedisServer, inbox: &mut Connection, channel: &str) -> Vec<String> {
    let _: i64 = server.connection().unwrap().publish(channel, "mark").unwrap();
    let mut all = Vec::new();
    loop {
        let text = next_message(inbox);
        if text == "mark" {
            return all;
        }
        all.push(text);
    }
}

#[track_caller]
pub fn messages(rig: &Rig, inbox: &mut Connection, who: &str) -> Vec<String> {
    received(server(), inbox, &format!("{PREFIX}{}-{who}", rig.name))
}

#[track_caller]
pub fn assert_in(kind: &str, answer: &[String], lease: i64) -> i64 {
    assert_eq!(answer.len(), 3, "{kind}: {answer:?}");
    assert_eq!(answer[0], "1", "{kind}: {answer:?}");
    let left = int(&answer[2]);
    // A rule that stores whole milliseconds may round up.
    assert!(left <= lease + 1 && left > lease - 5_000, "{kind}: {answer:?}");
    int(&answer[1])
}

/// Returns the last three of {0, last number, ms, arrival}.
#[track_caller]
pub fn assert_busy(kind: &str, answer: &[String]) -> (i64, i64, String) {
    assert_eq!(answer.len(), 4, "{kind}: {answer:?}");
    assert_eq!(answer[0], "0", "{kind}: {answer:?}");
    (int(&answer[1]), int(&answer[2]), answer[3].clone())
}
