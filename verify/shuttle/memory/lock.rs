//! A lock in memory: the scripts of `lua/`, run by the fake Redis with which the models are checked.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use redis::Value;

use super::server::Channels;
use crate::clock::Moment;
use crate::engine::small_redis::{Message, Mode, Op, PendingAcquire, Reply, Says, SmallRedis, Tell, millis};
use crate::engine::state::grant::KEEPS;
use crate::engine::state::lock_state::{AcquireMode, Answer, Renewal};
use crate::kind::Kind;
use crate::kinds::{Permits, Read, Reentrant, Simple};
use crate::script::{Script, Scripts};

/// How many permits each semaphore has.
const PERMITS: u8 = 2;

/// The kinds of locks here.
#[derive(Clone, Copy)]
enum Is {
    Exclusive,
    ReadWrite,
    Semaphore,
}

/// What a script does, and for which kind of lock.
#[derive(Clone, Copy)]
pub(super) struct Known(Is, &'static str);

/// Returns the script with this SHA1 or source.
pub(super) fn script(called: &str) -> Option<Known> {
    static KNOWN: OnceLock<BTreeMap<String, Known>> = OnceLock::new();
    KNOWN.get_or_init(all_scripts).get(called).copied()
}

fn all_scripts() -> BTreeMap<String, Known> {
    let mut known = BTreeMap::new();
    let kinds = [
        (Is::Exclusive, Reentrant::RULE),
        (Is::Exclusive, Simple::RULE),
        (Is::ReadWrite, Read::RULE),
        (Is::Semaphore, Permits::RULE),
    ];
    for (is, rule) in kinds {
        let mut add = |script: &Script, what| {
            // As it is called, by its SHA1 or in full.
            let sha = script.by_sha.lines().nth(3).expect("what its calls begin with");
            known.insert(sha.to_owned(), Known(is, what));
            known.insert(script.source.to_string(), Known(is, what));
        };
        let scripts = Scripts::of(rule).expect("a rule of ours");
        add(&scripts.acquire, "acquire");
        add(&scripts.leave, "leave");
        add(&scripts.renew, "renew");
        let scripts = Scripts::of_conditions(rule).expect("a rule of ours");
        add(&scripts.acquire, "await");
        add(&scripts.leave, "quit");
        if let Some(script) = &scripts.change {
            add(script, "signal");
        }
        // The same text as the lock's own script, if the kind has one.
        add(&scripts.renew, "renew");
    }
    known
}

pub(super) struct Lock {
    redis: SmallRedis,
    /// All owners and conditions so far: their numbers are their positions here, from 1 on.
    owners: Vec<String>,
    conditions: Vec<String>,
}

fn now() -> u64 {
    millis(Moment::now().since(Moment::default()))
}

/// Returns the number of an owner, from 1 on, with the mark of an owner whose process may keep the lock.
fn owner_of(owners: &mut Vec<String>, id: &str) -> u64 {
    number_of(owners, id) | if id.ends_with('~') { KEEPS } else { 0 }
}

/// Returns the number of a name, from 1 on.
fn number_of(names: &mut Vec<String>, name: &str) -> u64 {
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    at as u64 + 1
}

/// The inboxes of this lock's owners.
struct Inboxes<'a> {
    owners: &'a [String],
    prefix: &'a str,
    channels: &'a mut Channels,
}

impl Inboxes<'_> {
    fn of(&self, owner: u64) -> (&str, String) {
        let id = &self.owners[(owner & !KEEPS) as usize - 1];
        (id, format!("{}{}", self.prefix, id.split(':').next().unwrap_or_default()))
    }
}

impl Tell for Inboxes<'_> {
    fn listens(&mut self, owner: u64) -> bool {
        self.channels.has_subscribers(&self.of(owner).1)
    }

    fn tell(&mut self, message: Message) {
        let Message { owner, says, number, lease, value } = message;
        let (id, channel) = self.of(owner);
        let what = match says {
            Says::In => "in",
            Says::Waits if id.ends_with('~') => "wanted",
            Says::Waits => "yield",
            Says::Again => "again",
        };
        let text = format!("{id} {what} {number} {lease} {value}");
        self.channels.publish(&channel, &text);
    }
}

impl Lock {
    /// Creates a lock that nobody has requested yet.
    pub(super) fn new(Known(is, _): Known, args: &[&str]) -> Lock {
        let timeout = args.get(3).and_then(|ms| ms.parse().ok()).expect("a waiter timeout in ms");
        let redis = match is {
            Is::Exclusive => SmallRedis::new(timeout, 0),
            Is::ReadWrite => SmallRedis::read_write(timeout, 0),
            Is::Semaphore => SmallRedis::semaphore(PERMITS, timeout, 0),
        };
        Lock { redis, owners: Vec::new(), conditions: Vec::new() }
    }

    pub(super) fn run(&mut self, Known(_, what): Known, args: &[&str], channels: &mut Channels) -> Value {
        let op = self.op(what, args);
        let asks = match &op {
            Op::Acquire(ask) | Op::Await { ask, .. } | Op::Leave { next: Some(ask), .. } => Some(ask.owner),
            _ => None,
        };
        let had = asks.is_some_and(|owner| self.waits(owner));
        let mut inboxes = Inboxes { owners: &self.owners, prefix: args[2], channels };
        let reply = self.redis.run(&op, now(), &mut inboxes);
        if let Some(owner) = asks.filter(|owner| !had && self.waits(*owner)) {
            // A grant is announced only once.
            let (id, channel) = inboxes.of(owner);
            assert!(
                inboxes.channels.was_there(&channel),
                "no-sleep-before-subscribed: {id} takes a queue position"
            );
        }
        value_of(&reply)
    }

    fn waits(&self, owner: u64) -> bool {
        self.redis.arrival(owner).is_some() || self.redis.awaiting.positions.contains_key(&owner)
    }

    /// Whether nobody holds it and nobody waits for it.
    pub(super) fn is_empty(&mut self) -> bool {
        self.redis.lapse(now());
        self.redis.holders().is_empty()
            && self.redis.queue.is_empty()
            && self.redis.awaiting.positions.is_empty()
    }

    /// Returns the last number.
    pub(super) fn last(&self) -> u64 {
        self.redis.fence
    }

    fn op(&mut self, what: &str, args: &[&str]) -> Op {
        let arg = |i: usize| args.get(i).copied().unwrap_or_default();
        let owner = owner_of(&mut self.owners, arg(0));
        let lease = arg(1).parse().expect("a lease in ms");
        let mut condition = |i: usize| number_of(&mut self.conditions, arg(i)) as u8;
        match what {
            "renew" => {
                assert!(arg(4).is_empty(), "no hold stays here after its release");
                Op::Renew { owner, lease }
            }
            "signal" => Op::Signal { owner, condition: condition(4), all: arg(5) == "all" },
            "quit" => Op::Quit { owner, maybe_in_flight: arg(4) == "1", condition: condition(5) },
            "leave" => {
                let next = (!arg(7).is_empty()).then(|| PendingAcquire {
                    owner: owner_of(&mut self.owners, arg(7)),
                    how: AcquireMode::Wait,
                    lease,
                    mode: Mode::of(arg(5)),
                    arrival: None,
                    from: None,
                    instead: false,
                });
                Op::Leave { owner, maybe_in_flight: arg(4) == "1", next }
            }
            _ => {
                let how = match arg(4) {
                    "try" => AcquireMode::Try,
                    "wait" => AcquireMode::Wait,
                    "keep" => AcquireMode::Keep,
                    "share" => AcquireMode::Share,
                    "back" => AcquireMode::Back,
                    how => panic!("{how}"),
                };
                let from = (!arg(7).is_empty()).then(|| owner_of(&mut self.owners, arg(7)));
                let (mode, arrival) = (Mode::of(arg(5)), arg(8).parse().ok());
                let ask = PendingAcquire { owner, how, lease, mode, arrival, from, instead: false };
                match what {
                    "acquire" => Op::Acquire(PendingAcquire { instead: arg(9) == "1", ..ask }),
                    _ => Op::Await { ask: PendingAcquire { arrival: None, ..ask }, condition: condition(9) },
                }
            }
        }
    }
}

fn value_of(reply: &Reply) -> Value {
    match reply {
        Reply::Acquired(answer) => Value::Array(answered(answer)),
        Reply::Left { inside, next: None } => Value::Int(i64::from(*inside)),
        Reply::Left { inside, next: Some(answer) } => {
            Value::Array([vec![Value::Int(i64::from(*inside))], answered(answer)].concat())
        }
        Reply::Renewed(Renewal::Left(left)) => int(millis(*left)),
        Reply::Renewed(_) | Reply::Signalled(None) => Value::Int(-1),
        Reply::Signalled(Some(n)) => int(*n as u64),
    }
}

fn answered(answer: &Answer) -> Vec<Value> {
    let text = |text: &str| Value::BulkString(text.into());
    match answer {
        Answer::In { number, left, value } => {
            vec![Value::Int(1), int(*number), int(millis(*left)), int(*value)]
        }
        Answer::Busy { last_number, again, arrival } => {
            vec![Value::Int(0), int(*last_number), int(millis(*again)), text(arrival)]
        }
        Answer::Back(answer) => [vec![Value::Int(2)], answered(answer)].concat(),
        Answer::Gone => vec![Value::Int(-1), text("gone")],
        Answer::Ended => vec![Value::Int(-1), text("over")],
        Answer::Refused(why) => vec![Value::Int(-1), text(why)],
        other => panic!("no script answers {other:?}"),
    }
}

fn int(n: u64) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}
