//! One lock on a real server, operated by the real Lua. Time is simulated by editing what the scripts stored.

use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionLike, RedisResult, Value, cmd, from_redis_value};

use super::scripts::{VIEW, WIND};
use crate::engine::entries::entry::owner_number;
use crate::engine::model::state::process_of;
use crate::engine::operations::replies;
use crate::engine::redis::resp::{PackedCall, list, number, text};
use crate::engine::small_redis::{Message, Op, PendingAcquire, Reply, Says, SmallRedis};
use crate::engine::state::grant::KEEPS;
use crate::engine::state::lock_state::AcquireMode;
use crate::names::{Names, inbox_prefix};
use crate::script::{Script, Scripts};
use redis_concurrent_testkit::RedisServer;

pub(super) const NAMESPACE: &str = "rc";
pub(super) const RECORD: &str = "1 4711 host label";
const MARK: &str = "mark";

/// A queue position on the server.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) owner: u64,
    pub(super) args: String,
    pub(super) arrival: u64,
    pub(super) lease: u64,
    /// In ms, like all times.
    pub(super) age: u64,
    pub(super) waiter_timeout: u64,
}

/// An owner inside.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) owner: u64,
    /// If the kind stores it.
    pub(super) number: Option<u64>,
    pub(super) left: i64,
    /// If the kind stores it.
    pub(super) value: Option<u64>,
    pub(super) writes: bool,
}

/// What is in Redis.
#[derive(Debug)]
pub(super) struct View {
    /// Sorted by owner.
    pub(super) holders: Vec<Inside>,
    /// If the kind stores it.
    pub(super) last: Option<u64>,
    pub(super) fence: u64,
    /// Of the first five keys; negative for a key that does not exist.
    pub(super) ttl: Vec<i64>,
    pub(super) positions: Vec<Seen>,
    /// The owners with a tombstone, and how much longer each lasts.
    pub(super) tombstones: Vec<(u64, i64)>,
    /// How many fields the positions' key has.
    pub(super) fields: usize,
    pub(super) messages: Vec<Message>,
}

pub(super) struct Real {
    con: Connection,
    /// Subscribed to the inboxes of the processes that can hear.
    ears: Connection,
    scripts: Rc<Scripts>,
    names: Names,
    /// The start that the uuids of this lock's clients have in common.
    client: String,
    hears: Vec<bool>,
    waiter_timeout: u64,
    /// When times were last set.
    wound: Instant,
}

impl Real {
    pub(super) fn new(
        server: &RedisServer,
        rule: &str,
        name: &str,
        processes: u8,
        waiter_timeout: u64,
    ) -> Real {
        let con = server.connection().unwrap();
        let scripts = Rc::new(Scripts::of(rule).unwrap());
        let names = Names::new(NAMESPACE, name).unwrap();
        // All but the last digit, which stands for the process.
        let mut client = uuid::Uuid::new_v4().to_string();
        client.pop();
        let hears = vec![false; processes.into()];
        let ears = server.connection().unwrap();
        let mut real =
            Real { con, ears, scripts, names, client, hears, waiter_timeout, wound: Instant::now() };
        real.listen("SUBSCRIBE", &real.channel(MARK));
        real
    }

    /// Empties the lock, except for the last number and the permits, unless they are 0.
    pub(super) fn begin(&mut self, fence: u64, permits: u8) {
        let keys = self.names.keys().map(|parts| parts.concat());
        cmd("DEL").arg(&keys).exec(&mut self.con).unwrap();
        if fence > 0 {
            cmd("SET").arg(&keys[3]).arg(fence).arg("PX").arg(7_200_000).exec(&mut self.con).unwrap();
        }
        let scripts = self.scripts.clone();
        if let Some(update) = scripts.update.as_ref().filter(|_| permits > 0) {
            let (id, permits) = (self.id(0), permits.to_string());
            self.script(update, &[&id, "0", &inbox_prefix(NAMESPACE), "0", "set", &permits]);
            // Removes the record that the update was applied.
            cmd("DEL").arg(&keys[4]).exec(&mut self.con).unwrap();
        }
        self.wound = Instant::now();
    }

    /// Returns the server's time in microseconds since 2020.
    pub(super) fn now(&mut self) -> u64 {
        let (s, us): (u64, u64) = cmd("TIME").query(&mut self.con).unwrap();
        s * 1_000_000 + us - 1_577_836_800_000_000
    }

    /// Returns how long ago times were last set.
    pub(super) fn drift(&self) -> Duration {
        self.wound.elapsed()
    }

    fn channel(&self, process: impl std::fmt::Display) -> String {
        format!("{}{}{process}", inbox_prefix(NAMESPACE), self.client)
    }

    fn listen(&mut self, verb: &str, channel: &str) {
        self.ears.send_packed_command(&cmd(verb).arg(channel).get_packed_command()).unwrap();
        self.ears.recv_response().unwrap();
    }

    /// Sets whether this process hears messages from now on.
    pub(super) fn set_hearing(&mut self, process: usize, hears: bool) {
        if self.hears[process] != hears {
            self.hears[process] = hears;
            let channel = self.channel(process);
            self.listen(if hears { "SUBSCRIBE" } else { "UNSUBSCRIBE" }, &channel);
        }
    }

    /// Returns `<uuid>:<n>`, or `<uuid>:<n>~`; the uuid names the process, as the number does.
    pub(super) fn id(&self, owner: u64) -> String {
        let keeps = if owner & KEEPS == 0 { "" } else { "~" };
        format!("{}{}:{}{keeps}", self.client, process_of(owner), owner & !KEEPS)
    }

    pub(super) fn owner(id: &str) -> u64 {
        id.rsplit(':').next().and_then(owner_number).unwrap()
    }

    pub(super) fn send(&mut self, verb: &str, script: &str, args: &[&str]) -> RedisResult<Value> {
        let begins = format!("${}\r\n{verb}\r\n${}\r\n{script}\r\n", verb.len(), script.len());
        let request = PackedCall::over(&begins, &PackedCall::keys(&self.names.keys())).with(args).packed();
        self.con.req_packed_command(&request)?.extract_error()
    }

    /// Runs a script, by its text until the server knows it.
    pub(super) fn script(&mut self, script: &Script, args: &[&str]) -> Value {
        let sha = script.by_sha.lines().nth(3).unwrap();
        self.send("EVALSHA", sha, args).unwrap_or_else(|_| self.send("EVAL", &script.source, args).unwrap())
    }

    /// Runs a request. `arrival` is the one that this server knows.
    pub(super) fn run(&mut self, op: &Op, arrival: Option<u64>) -> Reply {
        let scripts = self.scripts.clone();
        let prefix = inbox_prefix(NAMESPACE);
        let waiter_timeout = self.waiter_timeout.to_string();
        let text_of = |arrival: Option<u64>| arrival.map(|a| a.to_string()).unwrap_or_default();
        let lease = |ask: &PendingAcquire| Duration::from_millis(ask.lease);
        match op {
            Op::Acquire(ask) => {
                let how = match ask.how {
                    AcquireMode::Try => "try",
                    AcquireMode::Wait => "wait",
                    AcquireMode::Keep => "keep",
                    AcquireMode::Share => "share",
                    AcquireMode::Back => "back",
                };
                let (id, ms, arrival) = (self.id(ask.owner), ask.lease.to_string(), text_of(arrival));
                let from = ask.from.map(|from| self.id(from)).unwrap_or_default();
                let record = RECORD.replacen('1', &ask.threads.to_string(), 1);
                let priority = if ask.priority == 0 { String::new() } else { ask.priority.to_string() };
                let most = ask.most.map(|most| most.to_string()).unwrap_or_default();
                let args = [
                    &*id,
                    &*ms,
                    &*prefix,
                    &*waiter_timeout,
                    how,
                    ask.mode.args(),
                    &*record,
                    &*from,
                    &*arrival,
                    if ask.instead { "1" } else { "" },
                    &*priority,
                    &*most,
                ];
                let last = args.iter().rposition(|arg| !arg.is_empty()).unwrap_or_default();
                let value = self.script(&scripts.acquire, &args[..=last]);
                Reply::Acquired(replies::acquired(&value, lease(ask)).unwrap())
            }
            Op::Leave { owner, maybe_in_flight, next } => {
                let id = self.id(*owner);
                let maybe_in_flight = if *maybe_in_flight { "1" } else { "0" };
                let ms = next.as_ref().map_or(0, |n| n.lease).to_string();
                let next_id = next.as_ref().map(|n| self.id(n.owner)).unwrap_or_default();
                let mode = next.as_ref().map_or("", |n| n.mode.args());
                let priority = next.as_ref().map_or(0, |n| n.priority);
                let arrival = text_of(arrival);
                let first = priority > 0 || !arrival.is_empty();
                let (first, priority) = (if first { "1" } else { "" }, priority.to_string());
                let (caller, next_is) =
                    ([&*id, &*ms, &*prefix, &*waiter_timeout], [RECORD, &*next_id, &*arrival]);
                let args = [&caller[..], &[maybe_in_flight, mode], &next_is, &[first, &*priority]].concat();
                let args = match next {
                    Some(_) => &args[..],
                    None if maybe_in_flight == "1" => &args[..5],
                    None => &args[..4],
                };
                let value = self.script(&scripts.leave, args);
                let items = list(&value);
                let next = next.as_ref().map(|n| replies::answer(&items[1..], lease(n)).unwrap());
                Reply::Left { inside: number(items.first().or(Some(&value))) == Some(1), next }
            }
            Op::Renew { owner, lease } => {
                let args = [self.id(*owner), lease.to_string(), prefix, waiter_timeout];
                let value = self.script(&scripts.renew, &args.each_ref().map(String::as_str));
                Reply::Renewed(replies::renewed(&value).unwrap())
            }
            Op::Revoke { owner } => {
                let args = [self.id(*owner), "0".to_owned(), prefix, waiter_timeout, "2".to_owned()];
                let value = self.script(&scripts.renew, &args.each_ref().map(String::as_str));
                Reply::Renewed(replies::renewed(&value).unwrap())
            }
            Op::Await { .. } | Op::Signal { .. } | Op::Quit { .. } => panic!("of a condition: {op:?}"),
        }
    }

    /// Reads everything that is stored, and what was published since the last view.
    pub(super) fn view(&mut self) -> View {
        let mark = self.channel(MARK);
        let value = self.send("EVAL", VIEW, &[&mark]).unwrap();
        let items = list(&value);
        let texts = |i: usize| list(&items[i]).iter().map(|v| text(Some(v)).unwrap()).collect::<Vec<_>>();
        let int = |s: &str| s.parse::<i64>().unwrap();
        let amount = |s: &str| u64::try_from(int(s).max(0)).unwrap();
        let position = |p: &[String]| Seen {
            owner: Self::owner(&p[0]),
            args: p[1].clone(),
            arrival: amount(&p[2]),
            lease: amount(&p[3]),
            age: amount(&p[4]) / 1_000,
            waiter_timeout: amount(&p[5]),
        };
        let inside = |h: &[String]| Inside {
            owner: Self::owner(&h[0]),
            number: h[1].parse().ok(),
            left: int(&h[2]),
            value: h[3].parse().ok(),
            writes: !h[4].is_empty(),
        };
        let mut holders: Vec<Inside> = texts(0).chunks(5).map(inside).collect();
        holders.sort_unstable_by_key(|holder| holder.owner);
        View {
            holders,
            last: text(items.get(1)).and_then(|n| n.parse().ok()),
            fence: amount(&text(items.get(2)).unwrap()),
            ttl: list(&items[3]).iter().map(|v| number(Some(v)).unwrap()).collect(),
            positions: texts(4).chunks(6).map(position).collect(),
            tombstones: texts(5).chunks(2).map(|g| (Self::owner(&g[0]), int(&g[1]))).collect(),
            fields: number(items.get(6)).and_then(|n| n.try_into().ok()).unwrap(),
            messages: self.received(),
        }
    }

    /// Returns the messages that have arrived, up to the mark.
    fn received(&mut self) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            let (_, channel, message): (String, String, String) =
                from_redis_value(self.ears.recv_response().unwrap()).unwrap();
            if message == MARK {
                return all;
            }
            let words: Vec<&str> = message.split(' ').collect();
            let (id, says, number, lease, value) = match words[..] {
                [id, "in", number, lease] => (id, Says::In, number, lease, "0"),
                [id, "in", number, lease, value] => (id, Says::In, number, lease, value),
                [id, "yield" | "wanted", "0", "0"] => (id, Says::Waits, "0", "0", "0"),
                [id, "again", "0", "0"] => (id, Says::Again, "0", "0", "0"),
                _ => panic!("heard {message:?}"),
            };
            let owner = Self::owner(id);
            assert_eq!(channel, self.channel(process_of(owner)), "the receiver of {message:?}");
            let [number, lease, value] = [number, lease, value].map(|n| n.parse().unwrap());
            all.push(Message { owner, says, number, lease, value });
        }
    }

    /// Sets all times to what they are in `small` at `now`.
    pub(super) fn wind(&mut self, small: &SmallRedis, now: u64) {
        let left = |end: u64| end.saturating_sub(now).to_string();
        let longest = small.holders().iter().map(|h| h.end).max();
        let mut args = vec![
            longest.map_or("0".into(), left),
            left(small.queue_ends),
            left(small.tombstones_end),
            left(small.awaiting.ends),
        ];
        let queue =
            small.queue.values().map(|position| (position.owner, position.heartbeat, position.steady));
        let awaiting = small.awaiting.positions.iter().map(|(o, w)| (*o, w.heartbeat, w.steady));
        let positions: Vec<_> = queue.chain(awaiting).collect();
        args.push(positions.len().to_string());
        for (owner, heartbeat, _) in &positions {
            args.extend([self.id(*owner), (now - heartbeat).to_string()]);
        }
        for (owner, _, steady) in &positions {
            let ms = steady.map_or("-".into(), |since| (now - since).to_string());
            args.extend(["~".into(), format!("{} {ms}", self.id(*owner))]);
        }
        for (owner, end) in &small.tombstones {
            args.extend([self.id(*owner), (i128::from(*end) - i128::from(now)).to_string()]);
        }
        for holder in small.holders() {
            args.extend([format!("={}", self.id(holder.owner)), left(holder.end)]);
        }
        args.extend(small.soon().into_iter().flat_map(|soon| ["=".into(), left(soon)]));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.wound = Instant::now();
        self.send("EVAL", WIND, &args).unwrap();
    }
}
