//! The scripts for waiters on a condition, on a real server, and what they stored.

use std::time::Duration;

use redis::Value;

use super::compare::Sides;
use super::real::{NAMESPACE, RECORD, Real};
use crate::engine::operations::replies;
use crate::engine::redis::resp::{list, number, text};
use crate::engine::small_redis::{Op, Reply, SmallRedis, Stage};
use crate::engine::state::lock_state::AcquireMode;
use crate::names::{self, inbox_prefix};
use crate::script::Scripts;

/// Returns {members, time to live, how each position came into the queue, {owner, lease, age µs, waiter
/// timeout, condition, since, …} of the positions beside the queue, {owner, condition} of the waiter that was
/// admitted by a signal}.
const VIEW: &str = "
local call, fmt = redis.call, string.format
local t = call('TIME')
local now = t[1] * 1000000 + t[2] - 1577836800000000
local stages, waits = {}, {}
for i, owner in ipairs(call('ZRANGE', KEYS[2], 0, -1)) do
  local p = cmsgpack.unpack(call('HGET', KEYS[3], owner))
  stages[i] = p[6] == nil and 'asked' or p[6] == false and 'back' or p[6]
end
for _, owner in ipairs(call('HKEYS', KEYS[3])) do
  if owner ~= 'signalled' and not call('ZSCORE', KEYS[2], owner) then
    local p = cmsgpack.unpack(call('HGET', KEYS[3], owner))
    for _, it in ipairs({owner, p[1], fmt('%.0f', now - p[2]), p[3], p[6], p[7]}) do
      waits[#waits + 1] = it
    end
  end
end
local signalled = call('HGET', KEYS[3], 'signalled')
return {call('ZRANGE', KEYS[6], 0, -1), call('PTTL', KEYS[6]), stages, waits,
  signalled and cmsgpack.unpack(signalled) or {}}";

/// Sets the end of the first lease of the waiter that was admitted by a signal: in this many ms.
const WIND: &str = "
local it = redis.call('HGET', KEYS[3], 'signalled')
if it then
  local t = redis.call('TIME')
  it = cmsgpack.unpack(it)
  it[3] = (t[1] * 1000000 + t[2] - 1577836800000000) / 1000 + ARGV[1]
  redis.call('HSET', KEYS[3], 'signalled', cmsgpack.pack(it))
end
return {}";

/// The position of a waiter for a signal.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) owner: u64,
    pub(super) lease: u64,
    /// In ms, like all times.
    pub(super) age: u64,
    pub(super) waiter_timeout: u64,
    pub(super) condition: u8,
    pub(super) since: u64,
}

/// What Redis stores beside the lock.
#[derive(Debug)]
pub(super) struct RoomView {
    /// Condition, arrival there and owner, in order.
    pub(super) members: Vec<(u8, u64, u64)>,
    /// The time to live of the members' key.
    pub(super) ttl: i64,
    /// How each position came into the queue.
    pub(super) stages: Vec<Stage>,
    /// By owner.
    pub(super) waits: Vec<Seen>,
    /// The waiter that was admitted by a signal, and the signal's condition.
    pub(super) signalled: Option<(u64, u8)>,
}

/// Returns the first two items of a list, if it has any.
fn texts_of_two(items: &Value) -> Option<(String, String)> {
    match list(items) {
        [] => None,
        items => Some((text(items.first())?, text(items.get(1))?)),
    }
}

pub(super) struct RealAwaiting {
    scripts: Scripts,
    /// The names of its conditions, as Redis knows them and in Redis's order: one is a prefix of the other.
    conditions: [String; 2],
    waiter_timeout: String,
}

impl RealAwaiting {
    pub(super) fn new(rule: &str, waiter_timeout: u64) -> RealAwaiting {
        RealAwaiting {
            scripts: Scripts::of_conditions(rule).unwrap(),
            conditions: ["c|", "c"].map(|name| names::field("condition's name", name).unwrap()),
            waiter_timeout: waiter_timeout.to_string(),
        }
    }

    fn condition(&self, name: &str) -> u8 {
        u8::try_from(self.conditions.iter().position(|c| c == name).unwrap()).unwrap()
    }

    pub(super) fn run(&self, real: &mut Real, op: &Op) -> Option<Reply> {
        let (prefix, waiter_timeout) = (inbox_prefix(NAMESPACE), &self.waiter_timeout);
        match op {
            Op::Await { ask, condition } => {
                let how = match ask.how {
                    AcquireMode::Wait => "wait",
                    AcquireMode::Keep => "keep",
                    AcquireMode::Back => "back",
                    AcquireMode::Try | AcquireMode::Share => {
                        panic!("a waiter for a condition does not {:?}", ask.how)
                    }
                };
                let from = ask.from.map(|from| real.id(from)).unwrap_or_default();
                let (id, ms, condition) =
                    (real.id(ask.owner), ask.lease.to_string(), &self.conditions[usize::from(*condition)]);
                let args = [&*id, &*ms, &*prefix, waiter_timeout, how, "", RECORD, &*from, "", condition];
                let value = real.script(&self.scripts.acquire, &args);
                Some(Reply::Acquired(replies::acquired(&value, Duration::from_millis(ask.lease)).unwrap()))
            }
            Op::Signal { owner, condition, all } => {
                let (id, condition) = (real.id(*owner), &self.conditions[usize::from(*condition)]);
                let what = if *all { "all" } else { "one" };
                let script = self.scripts.update.as_ref().unwrap();
                let value = real.script(script, &[&*id, "0", &*prefix, waiter_timeout, condition, what]);
                Some(Reply::Signalled(number(Some(&value)).and_then(|n| n.try_into().ok())))
            }
            Op::Quit { owner, condition, maybe_in_flight } => {
                let (id, condition) = (real.id(*owner), &self.conditions[usize::from(*condition)]);
                let maybe_in_flight = if *maybe_in_flight { "1" } else { "0" };
                let args = [&*id, "0", &*prefix, waiter_timeout, maybe_in_flight, condition];
                let value = real.script(&self.scripts.leave, &args);
                Some(Reply::Left { inside: number(Some(&value)) == Some(1), next: None })
            }
            Op::Acquire(_) | Op::Leave { .. } | Op::Renew { .. } | Op::Revoke { .. } => None,
        }
    }

    pub(super) fn view(&self, real: &mut Real) -> RoomView {
        let value = real.send("EVAL", VIEW, &[]).unwrap();
        let items = list(&value);
        let texts = |i: usize| list(&items[i]).iter().map(|v| text(Some(v)).unwrap()).collect::<Vec<_>>();
        let amount = |s: &str| s.parse::<i64>().unwrap().max(0).unsigned_abs();
        let member = |m: &String| {
            let parts: Vec<&str> = m.split('|').collect();
            (self.condition(parts[0]), amount(parts[1]), Real::owner(parts[2]))
        };
        let stage = |s: &String| match s.as_str() {
            "asked" => Stage::Asked,
            "back" => Stage::Back,
            name => Stage::Signalled(self.condition(name)),
        };
        let seen = |w: &[String]| Seen {
            owner: Real::owner(&w[0]),
            lease: amount(&w[1]),
            age: amount(&w[2]) / 1_000,
            waiter_timeout: amount(&w[3]),
            condition: self.condition(&w[4]),
            since: amount(&w[5]),
        };
        let mut waits: Vec<Seen> = texts(3).chunks(6).map(seen).collect();
        waits.sort_by_key(|w| w.owner);
        let signalled = texts_of_two(&items[4]).map(|(o, c)| (Real::owner(&o), self.condition(&c)));
        RoomView {
            members: texts(0).iter().map(member).collect(),
            ttl: number(items.get(1)).unwrap(),
            stages: texts(2).iter().map(stage).collect(),
            waits,
            signalled,
        }
    }

    /// Sets the times to what they are in `small` at `now`.
    pub(super) fn wind(&self, real: &mut Real, small: &SmallRedis, now: u64) {
        if let Some(it) = small.awaiting.signalled {
            let left = (i128::from(it.ends) - i128::from(now)).to_string();
            real.send("EVAL", WIND, &[&left]).unwrap();
        }
    }
}

impl Sides {
    /// Waiters for signals must agree too: their positions and order, which of them were signalled, and how
    /// each position came into the queue.
    pub(super) fn compare_awaiting(&mut self, small: &SmallRedis, now: u64, view: &RoomView) {
        let stages: Vec<Stage> = small.queue.values().map(|position| position.stage).collect();
        assert_eq!(stages, view.stages, "by what they are in the queue");
        let ours: Vec<_> = small.awaiting.members.iter().map(|((c, _), owner)| (*c, *owner)).collect();
        let theirs: Vec<_> = view.members.iter().map(|(c, _, owner)| (*c, *owner)).collect();
        assert_eq!(ours, theirs, "the waiters for a signal, in order");
        for ((_, since), (_, seen, _)) in small.awaiting.members.keys().zip(&view.members) {
            self.arrivals.same(*since, *seen, "arrival in a condition");
        }
        match ours.len() {
            0 => assert_eq!(view.ttl, -2, "no conditions"),
            _ => self.near_end(small.awaiting.ends, view.ttl, now, "conditions"),
        }
        let ours = small.awaiting.signalled.map(|it| (it.owner, it.condition));
        assert_eq!(ours, view.signalled, "the owners let in by a signal");
        assert_eq!(small.awaiting.positions.len(), view.waits.len(), "positions beside the queue");
        for ((owner, waits), seen) in small.awaiting.positions.iter().zip(&view.waits) {
            let ours = (*owner, waits.condition, waits.lease, self.waiter_timeout);
            assert_eq!(ours, (seen.owner, seen.condition, seen.lease, seen.waiter_timeout), "{seen:?}");
            self.arrivals.same(waits.since, seen.since, "arrival of a position in a condition");
            self.near(seen.age, now - waits.heartbeat, "age of a position in a condition");
        }
    }
}
