//! A small Redis for the tests of the gate: what the scripts do, over one exclusive lock.
//!
//! The models and the walks by chance both run on it. That it says what the Lua says is not taken
//! on trust: `model/replay.rs` has a real server say the same. Times are in milliseconds, and given
//! with each operation; when a message was heard is the business of whoever has it delivered.

mod conditions;

use std::collections::BTreeMap;
use std::time::Duration;

use self::conditions::Room;
pub(super) use self::conditions::{RoomOp, RoomReply, Stage};
use super::gate::{Answer, Asking, How, Renewal};

/// How long an owner is barred.
pub(super) const BARRED: u64 = 60_000;

/// A window that is never over.
pub(super) const FOR_EVER: u64 = u64::MAX / 2;

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ask {
    pub(super) owner: u64,
    pub(super) how: How,
    pub(super) lease: u64,
    pub(super) arrival: Option<u64>,
}

impl From<&Asking> for Ask {
    fn from(asking: &Asking) -> Self {
        let (lease, arrival) = (millis(asking.terms.lease), asking.arrival.parse().ok());
        Ask { owner: asking.owner, how: asking.how, lease, arrival }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Op {
    Acquire(Ask),
    Leave { owner: u64, unsettled: bool, next: Option<Ask> },
    Renew { owner: u64, lease: u64 },
}

impl Op {
    /// The place that this request says `owner` had.
    pub(super) fn arrival(&self, owner: u64) -> Option<u64> {
        match self {
            Op::Acquire(ask) | Op::Leave { next: Some(ask), .. } if ask.owner == owner => ask.arrival,
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Acquired(Answer),
    Left { inside: bool, next: Option<Answer> },
    Renewed(Renewal),
}

/// "You have the lock": to whom, under which number, for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Message {
    pub(super) owner: u64,
    pub(super) number: u64,
    pub(super) lease: u64,
}

impl Message {
    /// "You were signalled": of use to nobody but who sends it, who learns whether it is heard.
    fn moved(owner: u64) -> Message {
        Message { owner, number: 0, lease: 0 }
    }

    pub(super) fn is_grant(&self) -> bool {
        self.number > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) owner: u64,
    pub(super) number: u64,
    pub(super) end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) owner: u64,
    pub(super) lease: u64,
    pub(super) beat: u64,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SmallRedis {
    window: u64,
    pub(super) holder: Option<Holder>,
    /// By arrival.
    pub(super) queue: BTreeMap<u64, Place>,
    /// When the queue's keys end, if nobody is heard of until then.
    pub(super) queue_ends: u64,
    pub(super) room: Room,
    arrivals: u64,
    pub(super) fence: u64,
    /// Who is barred, and when that may be forgotten: with the next one, or with the key.
    pub(super) gone: BTreeMap<u64, u64>,
    pub(super) gone_ends: u64,
}

/// Whom a grant is told to: says whether that process was there to hear it.
pub(super) trait Tell: FnMut(Message) -> bool {}
impl<F: FnMut(Message) -> bool> Tell for F {}

impl SmallRedis {
    /// An empty one, whose last number is `fence`. `window`: how long a silent place lives.
    pub(super) fn new(window: u64, fence: u64) -> Self {
        SmallRedis {
            window,
            holder: None,
            queue: BTreeMap::new(),
            queue_ends: 0,
            room: Room::default(),
            arrivals: 0,
            fence,
            gone: BTreeMap::new(),
            gone_ends: 0,
        }
    }

    /// Runs one script.
    pub(super) fn run(&mut self, op: &Op, now: u64, tell: &mut impl Tell) -> Reply {
        self.lapse(now);
        match op {
            Op::Acquire(ask) => {
                let at_once = self.at_once(ask, now);
                Reply::Acquired(at_once.unwrap_or_else(|| self.acquire(ask, now, tell)))
            }
            Op::Leave { owner, unsettled, next } => {
                let inside = self.dismiss(*owner);
                if !inside {
                    self.drop_place(*owner);
                }
                if *unsettled && !planted!("no-tombstone") {
                    self.gone.retain(|_, end| *end >= now);
                    self.gone.insert(*owner, now + BARRED);
                    self.gone_ends = now + BARRED;
                }
                self.settle(next.as_ref().map(|next| next.owner), now, tell);
                Reply::Left { inside, next: next.as_ref().map(|next| self.acquire(next, now, tell)) }
            }
            Op::Renew { owner, lease } => {
                if planted!("renewal-creates") {
                    self.admit(*owner, *lease, now);
                }
                match &mut self.holder {
                    Some(holder) if holder.owner == *owner => {
                        holder.end = now + lease;
                        Reply::Renewed(Renewal::Left(Duration::from_millis(*lease)))
                    }
                    _ => Reply::Renewed(Renewal::NotInside),
                }
            }
        }
    }

    /// What ends by itself.
    pub(super) fn lapse(&mut self, now: u64) {
        self.holder.take_if(|holder| holder.end <= now);
        if self.queue_ends <= now {
            self.queue.clear();
        }
        self.room.lapse(now, self.queue_ends <= now);
        if self.gone_ends <= now {
            self.gone.clear();
        }
    }

    /// For a model in which nobody is silent for long and no bar ends: what differs only in when
    /// it was last heard is one state.
    pub(super) fn forget_when(&mut self) {
        self.queue.values_mut().for_each(|place| place.beat = 0);
        self.room.forget_when();
        self.gone.values_mut().for_each(|end| *end = FOR_EVER);
        (self.queue_ends, self.gone_ends) = (FOR_EVER, FOR_EVER);
    }

    /// Who waits, the next one first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue.values().map(|place| place.owner)
    }

    fn admit(&mut self, owner: u64, lease: u64, now: u64) -> bool {
        if self.holder.is_some() {
            return false;
        }
        self.fence = (self.fence + 1).max(now);
        self.holder = Some(Holder { owner, number: self.fence, end: now + lease });
        true
    }

    fn dismiss(&mut self, owner: u64) -> bool {
        self.holder.take_if(|holder| holder.owner == owner || planted!("no-owner-check")).is_some()
    }

    fn inside(&self, owner: u64, now: u64) -> Option<Answer> {
        let holder = self.holder.filter(|holder| holder.owner == owner)?;
        Some(Answer::In { number: holder.number, left: Duration::from_millis(holder.end - now), value: 0 })
    }

    /// Where in the order its place is.
    pub(super) fn arrival(&self, owner: u64) -> Option<u64> {
        self.queue.iter().find(|(_, place)| place.owner == owner).map(|(arrival, _)| *arrival)
    }

    fn drop_place(&mut self, owner: u64) {
        self.queue.retain(|_, place| place.owner != owner);
    }

    fn enqueue(&mut self, ask: &Ask, stage: Stage, now: u64) {
        let arrival = self.arrival(ask.owner).or(ask.arrival).unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let (ends, new) = (self.places_end(), self.queue.is_empty());
        self.room.places.remove(&ask.owner);
        self.queue.insert(arrival, Place { owner: ask.owner, lease: ask.lease, beat: now, stage });
        self.queue_ends = ends;
        if new || ends < now + self.window {
            self.queue_ends = ends.max(now.saturating_add(self.window.saturating_mul(2)));
        }
    }

    /// The loop that ends every script: `me` is answered, others are told.
    fn settle(&mut self, me: Option<u64>, now: u64, tell: &mut impl Tell) {
        while self.holder.is_none() {
            let Some((arrival, place)) = self.queue.pop_first() else { return };
            if now - place.beat > self.window {
                self.pass_on(&place, arrival, now);
                continue;
            }
            self.admit(place.owner, place.lease, now);
            let message = Message { owner: place.owner, number: self.fence, lease: place.lease };
            if Some(place.owner) != me && !tell(message) {
                self.holder = None;
                self.pass_on(&place, arrival, now);
            }
        }
    }

    /// Nobody holds, nobody waits, nobody is barred: it is in, and had no place, which would make those of
    /// who waits for a condition live longer.
    fn at_once(&mut self, ask: &Ask, now: u64) -> Option<Answer> {
        let blank = self.holder.is_none() && self.queue.is_empty() && self.gone.is_empty();
        let comes_in = blank && ask.how != How::Keep && self.admit(ask.owner, ask.lease, now);
        comes_in.then(|| self.inside(ask.owner, now)).flatten()
    }

    fn acquire(&mut self, ask: &Ask, now: u64, tell: &mut impl Tell) -> Answer {
        if self.gone.contains_key(&ask.owner) {
            return Answer::Over;
        }
        if let Some(answer) = self.inside(ask.owner, now) {
            return answer;
        }
        let blank = self.holder.is_none() && self.queue.is_empty();
        if planted!("only-leave-admits") && (ask.how == How::Keep || !blank) {
            match ask.how {
                How::Keep if self.arrival(ask.owner).is_none() => return Answer::Gone,
                How::Try | How::Share | How::Back => {}
                How::Keep | How::Wait => self.enqueue(ask, Stage::Asked, now),
            }
            return self.busy(ask, now);
        }
        match ask.how {
            How::Keep if self.arrival(ask.owner).is_none() => {
                self.settle(None, now, tell);
                return Answer::Gone;
            }
            // None of these locks has a share, or a condition.
            How::Try | How::Share | How::Back => {
                self.settle(None, now, tell);
                if !self.queue.is_empty() || !self.admit(ask.owner, ask.lease, now) {
                    // Even if it is this owner whom the loop let in: it is told.
                    return self.busy(ask, now);
                }
            }
            How::Keep | How::Wait => {
                self.enqueue(ask, Stage::Asked, now);
                self.settle(Some(ask.owner), now, tell);
            }
        }
        self.inside(ask.owner, now).unwrap_or_else(|| self.busy(ask, now))
    }

    fn busy(&self, ask: &Ask, now: u64) -> Answer {
        let mut again = self.window.min(ask.lease).div_ceil(3);
        if let Some(holder) = self.holder {
            again = again.min(holder.end - now);
        }
        let arrival = self.arrival(ask.owner).map(|a| a.to_string()).unwrap_or_default();
        Answer::Busy { floor: self.fence, again: Duration::from_millis(again.max(1)), arrival }
    }
}
