//! What one thread of a run does with what is not a lock: latches, a barrier, work that is done once, an election, an
//! inventory, rate limiters. What each of them promises is checked from what the callers were told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::checks::{self, SOON, WHOLE, always, sometimes};
use super::faults::{Plan, Weather};
use super::part::{Part, is_in_time};
use crate::client::Client;
use crate::error::ErrorKind;
use crate::inventory::Order;
use crate::once::Begun;
use crate::rate_limiter::Rate;
use crate::sync::time;
use crate::wait::Wait;

/// Whether a key stays, as it is its users' own: permits and reservations with those who hold them, counts, and that a
/// barrier is broken.
pub(super) fn is_own(key: &str) -> bool {
    let own = ["rc:{semaphore}", "rc:{goods}", "rc:{quota}", "rc:{barrier}"];
    let held = ["rc:{semaphore}:conditions", "rc:{goods}:conditions"];
    own.contains(&key) || held.contains(&key) || key.starts_with("rc:{latch") && key.ends_with('}')
}

const COUNT: u64 = 3;
const PARTIES: usize = 2;
/// So long after the last request of a party that gave up, Redis counts it: a waiter timeout, by clocks that may differ.
const COUNTED: Duration = Duration::from_millis(3_100);
/// How long the outcome of work is kept, and the id of a sold order.
const KEPT: Duration = Duration::from_secs(60);
const RATE: Rate = Rate::smooth_with_burst(4, Duration::from_secs(2), 2);
const ADMITTED: u32 = 4 + 2;
/// So long that nothing of it is free again in a run.
const QUOTA: Rate = Rate::fixed_window(1_000, Duration::from_secs(24 * 3_600));

/// What was asked for by calls: surely done, and perhaps.
#[derive(Clone, Copy, Default)]
struct Amount {
    surely: u64,
    at_most: u64,
}

impl Amount {
    fn begins(&mut self, n: u64) {
        self.at_most += n;
    }

    fn holds(&self, n: u64) -> bool {
        (self.surely..=self.at_most).contains(&n)
    }
}

/// A call of a barrier.
struct Arrival {
    acts: bool,
    began: Duration,
    /// `None`: it has not returned.
    ended: Option<Duration>,
    /// `None`: it did not pass, or it is not known whether it did.
    index: Option<usize>,
}

#[derive(Default)]
struct Work {
    /// What may have been stored, and since when.
    stored: BTreeMap<String, Duration>,
    /// What certainly was not.
    refused: BTreeSet<String>,
    /// What a caller was told.
    outcome: Option<String>,
    /// When it was stored at the latest.
    done: Option<Duration>,
}

#[derive(Default)]
struct Records {
    downs: BTreeMap<String, Amount>,
    /// When the call returned that opened the latch.
    opened: BTreeMap<String, Duration>,
    arrivals: Vec<Arrival>,
    work: BTreeMap<String, Work>,
    stocked: Amount,
    sold: Amount,
    /// Units, and when their sale was confirmed.
    sales: Vec<(Duration, u64)>,
    /// When an order with this id began to be sold, and when it certainly was.
    orders: BTreeMap<String, (Duration, Duration)>,
    /// When permits were asked for and admitted, and how many.
    admitted: Vec<(Duration, Duration, u32)>,
    quota: Amount,
}

thread_local!(static RECORDS: RefCell<Records> = RefCell::default());

fn with<R>(f: impl FnOnce(&mut Records) -> R) -> R {
    RECORDS.with_borrow_mut(f)
}

/// Begins a run.
pub(super) fn begin() {
    RECORDS.set(Records::default());
}

impl Part {
    fn some_time(&mut self) -> Wait<'static> {
        Wait::timeout(Duration::from_millis(1 + self.rng.below(8_000) as u64))
    }

    // ---- latch -----------------------------------------------------------------------------

    /// Counts down, or waits. a-latch-opens-at-zero: nobody passes before as many calls have counted down.
    pub(super) fn count_down(&mut self) {
        let name = format!("latch-{}", time::elapsed().as_secs() / 8);
        let latch = self.client.count_down_latch(&name);
        if self.expects(latch.try_set_count(COUNT)).is_none() {
            return;
        }
        if self.rng.below(2) == 0 {
            with(|it| it.downs.entry(name.clone()).or_default().begins(1));
            if let Some(left) = self.expects(latch.count_down()) {
                with(|it| it.downs.entry(name.clone()).or_default().surely += 1);
                if left == 0 {
                    with(|it| *it.opened.entry(name).or_insert_with(time::elapsed));
                }
            }
            return;
        }
        let (wait, asked) = (self.some_time(), time::elapsed());
        if self.in_time(wait, latch.wait_with(wait)) != Some(true) {
            return;
        }
        sometimes("a waiter passes a latch");
        let downs = with(|it| it.downs.entry(name.clone()).or_default().at_most);
        always("a-latch-opens-at-zero", downs >= COUNT, || {
            format!("{name} is open after {downs} of {COUNT}")
        });
        let free = with(|it| it.opened.get(&name).copied());
        self.soon("no-lost-wake-up", free.map(|opened| opened.max(asked)));
    }

    /// Where nothing goes wrong, a waiter goes on soon after it can.
    fn soon(&self, check: &str, since: Option<Duration>) {
        let waited = time::elapsed().saturating_sub(since.unwrap_or(Duration::MAX));
        always(check, self.weather != Weather::Calm || waited <= SOON, || format!("{waited:?} too late"));
    }

    // ---- barrier ---------------------------------------------------------------------------

    /// Waits for another party.
    pub(super) fn meet(&mut self) {
        let barrier = self.client.cyclic_barrier("barrier", PARTIES);
        let (wait, acts) = (self.some_time(), self.rng.below(3) == 0);
        let at = with(|it| {
            it.arrivals.push(Arrival { acts, began: time::elapsed(), ended: None, index: None });
            it.arrivals.len() - 1
        });
        let met =
            if acts { barrier.wait_then_with(wait, || self.pause(1_000)) } else { barrier.wait_with(wait) };
        if !acts {
            is_in_time(wait);
        }
        let index = match met {
            Err(error) if error.kind() == ErrorKind::Timeout => None,
            Err(error) if error.kind() == ErrorKind::Broken => {
                sometimes("a barrier is broken");
                if self.rng.below(2) == 0 {
                    self.expects(barrier.reset());
                }
                None
            }
            met => self.expects(met),
        };
        if index.is_some() {
            sometimes("a party passes a barrier");
        }
        with(|it| {
            let arrival = &mut it.arrivals[at];
            (arrival.ended, arrival.index) = (Some(time::elapsed()), index);
        });
    }

    // ---- once ------------------------------------------------------------------------------

    /// Does work that is to be done once, or hears what came of it.
    pub(super) fn work(&mut self) {
        let name = format!("once-{}", time::elapsed().as_secs() / 6);
        let once = self.client.once(&name).expire_after(KEPT);
        let (wait, asked) = (self.wait(), time::elapsed());
        let Some(begun) = self.in_time(wait, once.begin_with(wait)) else { return };
        let attempt = match begun {
            Begun::InProgress => return sometimes("a wait ends by its timeout"),
            Begun::Done(outcome) | Begun::Failed(outcome) => {
                sometimes("an answer is another caller's");
                let done = with(|it| it.work.entry(name.clone()).or_default().done);
                self.soon("no-lost-wake-up", done.map(|done| done.max(asked)));
                return self.is_outcome(&name, outcome);
            }
            Begun::Yours(attempt) => attempt,
        };
        let done = with(|it| it.work.entry(name.clone()).or_default().done);
        let again = done.is_some_and(|done| done < asked && time::elapsed() < done + KEPT / 2);
        always("work-is-done-once", self.weather == Weather::Lossy || !again, || {
            format!("{name} was done at {done:?}, and is asked for again")
        });
        let hold = checks::held(&name, self.process, (WHOLE, WHOLE), Some(attempt.token()), asked);
        self.stay(hold, &attempt);
        checks::ends(hold);
        let (how, outcome) = (self.rng.below(4), format!("by {}", attempt.token()));
        let stores = |it: &mut Records| {
            it.work.entry(name.clone()).or_default().stored.insert(outcome.clone(), time::elapsed());
        };
        let ended = match how {
            0 => attempt.give_back(),
            1 => {
                with(stores);
                attempt.fail(&outcome)
            }
            _ => {
                with(stores);
                attempt.done(&outcome)
            }
        };
        let refused = ended.as_ref().is_err_and(|e| {
            matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::LeaseLost | ErrorKind::NotOwner)
        });
        let ended = self.expects(ended);
        checks::released(hold, ended.is_some());
        if how > 0 && ended.is_some() {
            with(|it| it.work.entry(name.clone()).or_default().done = Some(time::elapsed()));
            self.is_outcome(&name, outcome);
        } else if how > 0 && refused {
            with(|it| it.work.entry(name).or_default().refused.insert(outcome));
        }
    }

    /// an-outcome-is-stored-once: all callers are told the same, and what an attempt has stored.
    fn is_outcome(&self, name: &str, outcome: String) {
        with(|it| {
            let work = it.work.entry(name.to_owned()).or_default();
            let stored = work.stored.contains_key(&outcome) && !work.refused.contains(&outcome);
            let check = "an-outcome-is-stored-once";
            always(check, stored, || format!("nobody has stored {outcome:?} of {name}"));
            let first = work.outcome.get_or_insert_with(|| outcome.clone());
            let same = *first == outcome || self.weather == Weather::Lossy;
            always(check, same, || format!("of {name}, {first:?} and then {outcome:?}"));
        });
    }

    // ---- election --------------------------------------------------------------------------

    /// Leads for a while, or observes who does: one-leader is one-owner.
    pub(super) fn lead(&mut self) {
        let election = self.client.election("election").value(&format!("candidate {}", self.process));
        if self.rng.below(3) == 0 {
            return self.observe(election.observe());
        }
        let (wait, asked) = (self.wait(), time::elapsed());
        let _about = checks::about("election", self.process);
        let Some(got) = self.in_time(wait, election.campaign_with(wait)) else { return };
        let Some(term) = got else {
            return checks::in_vain("election", self.process, (WHOLE, WHOLE), asked);
        };
        let hold = checks::held("election", self.process, (WHOLE, WHOLE), Some(term.token()), asked);
        if self.rng.below(2) == 0 {
            self.expects(term.proclaim("proclaimed"));
        }
        self.stay(hold, &term);
        checks::ends(hold);
        let resigned = term.resign();
        checks::released(hold, self.expects(resigned).is_some());
    }

    /// terms-grow: of the leaders that one observer sees, each has a higher term than the one before.
    fn observe(&mut self, mut changes: crate::election::Changes) {
        let mut last = 0;
        for _ in 0..3 {
            let wait = self.some_time();
            let Some(Some(change)) = self.in_time(wait, changes.next_with(wait)) else { return };
            let Some(leader) = change.leader else { continue };
            sometimes("a leader is observed");
            let grows = last <= leader.term || self.weather == Weather::Lossy;
            always("terms-grow", grows, || format!("{last}, then {leader:?}"));
            last = leader.term;
        }
    }

    // ---- inventory -------------------------------------------------------------------------

    /// Stocks, reserves, and sells what it has reserved or gives it back.
    pub(super) fn sell(&mut self) {
        let goods = self.client.inventory("goods").expire_ids_after(KEPT);
        with(|it| it.stocked.begins(1));
        if self.expects(goods.add_stock("lamp", 1)).is_some() {
            with(|it| it.stocked.surely += 1);
        }
        let n = 1 + self.rng.below(2) as u64;
        let id = format!("order-{}", self.rng.below(4));
        let asked = time::elapsed();
        let got = match goods.try_reserve(&Order::of("lamp", n).id(&id)) {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                return sometimes("an order is there already");
            }
            // More than was ever stocked.
            Err(error) if error.kind() == ErrorKind::Refused => return,
            got => self.expects(got),
        };
        let Some(got) = got else { return };
        let Some(reservation) = got else { return sometimes("nothing is left to reserve") };
        let sold = with(|it| it.orders.get(&id).copied());
        let again =
            sold.is_some_and(|(begun, sold)| sold < asked && time::elapsed() < begun + KEPT * 99 / 100);
        let once = self.weather == Weather::Lossy || !again;
        always("an-order-is-sold-once", once, || format!("{id}, at {sold:?}"));
        let hold = checks::held("goods", self.process, (n as u32, u32::MAX), None, asked);
        let order = checks::held(&id, self.process, (WHOLE, WHOLE), None, asked);
        self.stay(hold, &reservation);
        checks::same(order, hold);
        [hold, order].into_iter().for_each(checks::ends);
        if self.rng.below(3) == 0 {
            let cancelled = reservation.cancel();
            self.expects(cancelled);
        } else {
            let begun = time::elapsed();
            with(|it| it.sold.begins(n));
            if self.expects(reservation.commit()).is_some() {
                sometimes("an order is sold");
                let now = time::elapsed();
                with(|it| {
                    it.sold.surely += n;
                    it.sales.push((now, n));
                    it.orders.insert(id, (begun, now));
                });
            }
        }
        [hold, order].into_iter().for_each(|hold| checks::released(hold, false));
        if let Some(stock) = self.expects(goods.stock("lamp")) {
            let sum = stock.available + stock.reserved + stock.sold;
            always("every-unit-is-somewhere", stock.stocked == sum, || format!("{stock:?}"));
        }
    }

    // ---- limiter ---------------------------------------------------------------------------

    /// Acquires permits of a rate, and of a quota.
    pub(super) fn acquire(&mut self) {
        let n = 1 + self.rng.below(2) as u32;
        let (wait, asked) = (self.wait(), time::elapsed());
        let decision = self.in_time(wait, self.client.rate_limiter("limiter", RATE).acquire_with(n, wait));
        if decision.is_some_and(|decision| decision.allowed) {
            let now = time::elapsed();
            if now > asked + Duration::from_millis(100) {
                sometimes("permits are admitted late");
            }
            with(|it| it.admitted.push((asked, now, n)));
        }
        with(|it| it.quota.begins(n.into()));
        if self.expects(self.client.rate_limiter("quota", QUOTA).try_acquire(n)).is_some() {
            with(|it| it.quota.surely += u64::from(n));
        }
    }
}

/// Checks a run that has ended, and what Redis counts then.
pub(super) fn finish(client: &Client, weather: Weather, plan: &Plan) {
    if weather == Weather::Lossy {
        return;
    }
    with(|it| {
        all_or_none(&it.arrivals, weather, plan);
        never_more_than_the_rate(&it.admitted);
        never_below_zero(it);
    });
    with(|it| std::mem::take(&mut it.downs)).into_iter().for_each(|(name, downs)| {
        if let Ok(Some(left)) = client.count_down_latch(&name).count() {
            let counted = COUNT - left;
            let fits = downs.surely.min(COUNT) <= counted && counted <= downs.at_most;
            assert!(fits, "a-call-counts-down-once: {name} {counted}, of {} calls", downs.at_most);
        }
    });
    let (stocked, sold, quota) = with(|it| (it.stocked, it.sold, it.quota));
    if let Ok(stock) = client.inventory("goods").stock("lamp") {
        let fits = stocked.holds(stock.stocked) && sold.holds(stock.sold);
        assert!(fits, "every-unit-is-somewhere: {stock:?}, sold: {} to {}", sold.surely, sold.at_most);
    }
    if quota.at_most > 0
        && let Ok(left) = client.rate_limiter("quota", QUOTA).available()
    {
        let used = 1_000 - u64::from(left);
        assert!(
            quota.holds(used),
            "no-request-counts-twice: {used}, not {} to {}",
            quota.surely,
            quota.at_most
        );
    }
}

/// all-or-none: whoever passes a barrier has met as many calls as make a round, one of each index or with an outcome
/// that was not told. Where something goes wrong, one that gave up counts until Redis knows of it.
fn all_or_none(arrivals: &[Arrival], weather: Weather, plan: &Plan) {
    let passes = |index| arrivals.iter().filter(move |it| it.index == Some(index));
    let untold = arrivals.iter().filter(|it| it.index.is_none()).count();
    for one in arrivals.iter().filter(|it| it.index.is_some()) {
        let ended = one.ended.expect("it has passed");
        let met = || {
            let until = |it: &Arrival, end| match it.index {
                None if weather != Weather::Calm => plan.arrives(end) + COUNTED,
                _ => end,
            };
            let there = move |it: &Arrival| it.ended.is_none_or(|end| one.began <= until(it, end));
            let meets = move |it: &&Arrival| it.began <= ended && there(it);
            arrivals.iter().filter(meets)
        };
        for index in (0..PARTIES).filter(|index| Some(*index) != one.index) {
            let there = met().any(|it| it.index.is_none_or(|its| its == index));
            assert!(there, "all-or-none: one passed from {:?} to {ended:?} without {index}", one.began);
        }
        let last = met().map(|it| it.began).max().expect("itself");
        let waited = ended.saturating_sub(last);
        // An action takes its time, also that of the round before.
        let late = weather == Weather::Calm && waited > SOON && !met().any(|it| it.acts);
        assert!(!late, "no-lost-wake-up: {waited:?} after the last party");
    }
    let counts: Vec<usize> = (0..PARTIES).map(|index| passes(index).count()).collect();
    let most = counts.iter().max().expect("parties");
    let fits = counts.iter().all(|n| n + untold >= *most);
    assert!(fits, "all-or-none: passes of each index: {counts:?}, {untold} others");
}

/// never-more-than-the-rate: in no window more than the limit and the burst.
fn never_more_than_the_rate(admitted: &[(Duration, Duration, u32)]) {
    for (from, ..) in admitted {
        let within = |(asked, at, _): &&(Duration, Duration, u32)| {
            // By a clock that may run fast.
            from <= asked && *at < *from + Duration::from_millis(1_980)
        };
        let sum: u32 = admitted.iter().filter(within).map(|(.., n)| n).sum();
        assert!(sum <= ADMITTED, "never-more-than-the-rate: {sum} in the window from {from:?}");
    }
}

/// never-below-zero: what is reserved and sold was stocked before.
fn never_below_zero(it: &Records) {
    let holds = checks::holds("goods");
    let all: Vec<_> = holds.iter().collect();
    for hold in &holds {
        let reserved: u32 = checks::inside(hold, &all).iter().map(|it| it.weight).sum();
        let sold: u64 = it.sales.iter().filter(|(at, _)| *at <= hold.began).map(|(_, n)| n).sum();
        let taken = u64::from(reserved) + sold;
        assert!(taken <= it.stocked.at_most, "never-below-zero: {taken} of {}", it.stocked.at_most);
    }
}
