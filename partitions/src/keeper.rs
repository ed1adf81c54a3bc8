//! The thread of a share: follows who is a member, and who is to own what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use redis_concurrent::crossbeam_channel::Sender;
use redis_concurrent::{CancellationToken, Error, ErrorKind, Wait};

use crate::members::{Membership, State};
use crate::partitions::{Partition, Partitions};
use crate::place::{Bell, Place};
use crate::plan::Plan;

/// How long the share rests after an error that may pass, and a partition that was given back without need.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a plan that is only for newcomers waits for more of them.
const SETTLE: Duration = Duration::from_millis(500);

/// What the thread keeps.
pub(crate) struct Keeper {
    partitions: Partitions,
    value: String,
    grace: Duration,
    deliver: Sender<Partition>,
    stop: CancellationToken,
    bell: Arc<Bell>,
    places: BTreeMap<u32, Kept>,
}

/// A partition that is owned or waited for.
struct Kept {
    place: Arc<Place>,
    /// Waits for it, if somebody else still owned it.
    waiting: Option<JoinHandle<()>>,
    /// When it is asked for again, after it was given back.
    again: Option<Instant>,
}

impl Keeper {
    pub(crate) fn new(
        partitions: Partitions,
        value: String,
        grace: Duration,
        deliver: Sender<Partition>,
        stop: CancellationToken,
    ) -> Keeper {
        let (bell, places) = (Arc::default(), BTreeMap::new());
        Keeper { partitions, value, grace, deliver, stop, bell, places }
    }

    /// Keeps the share until it is stopped, or an error that does not pass ends it; then gives everything back.
    pub(crate) fn go_on(mut self, mut membership: Membership) -> Result<(), Error> {
        let mut ended = Ok(());
        while !self.stop.is_cancelled() {
            let wake = self.bell.next(&self.stop);
            match self.turn(&mut membership, &wake) {
                Err(error) if error.kind() == ErrorKind::Cancelled => {}
                Err(error) if may_pass(error.kind()) => drop(wake.wait_timeout(PAUSE)),
                Err(error) => {
                    ended = Err(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        // First, so that the others already wait for what is given back. If it fails, it ends with its lease.
        let _ = membership.leave();
        self.revoke_others(&[]);
        // What stopped the share must not cut this short.
        let draining = CancellationToken::new();
        while !self.places.is_empty() {
            let wake = self.bell.next(&draining);
            self.settle(&[]);
            let at = self.next_time().unwrap_or_else(|| Instant::now() + PAUSE);
            if !self.places.is_empty() {
                wake.wait_timeout(at.saturating_duration_since(Instant::now()));
            }
        }
        ended
    }

    /// Does what is to be done now, and waits for the next change.
    fn turn(&mut self, membership: &mut Membership, wake: &CancellationToken) -> Result<(), Error> {
        let state = self.planned(membership)?;
        let owners = Plan::read(&state.plan).0.into_iter().zip(0..);
        let number = membership.number();
        let mine: Vec<u32> = owners.filter(|(owner, _)| *owner == number).map(|(_, k)| k).collect();
        self.revoke_others(&mine);
        self.settle(&mine);
        for k in mine {
            if !self.places.contains_key(&k) {
                self.take(k)?;
            }
        }
        let wait = self.next_time().map_or(Wait::forever(), Wait::until).cancelled_by(wake);
        self.partitions.members().await_news(state.seen(), wait).map(drop)
    }

    /// The members, this process among them, with a plan for them. All members make the same one; that of the first
    /// counts.
    fn planned(&self, membership: &mut Membership) -> Result<State, Error> {
        let (members, mut settled) = (self.partitions.members(), None);
        let wait = Wait::forever().cancelled_by(&self.stop);
        loop {
            let state = members.state("plan", wait)?;
            let numbers: Vec<u64> = state.members.iter().map(|member| member.number).collect();
            if membership.is_lost() || !numbers.contains(&membership.number()) {
                *membership = self.partitions.enter(&self.value, wait)?;
                continue;
            }
            if state.planned == state.version {
                return Ok(state);
            }
            let plan = Plan::read(&state.plan);
            let all_there = plan.0.iter().all(|owner| numbers.contains(owner));
            let settled = *settled.get_or_insert_with(|| Instant::now() + SETTLE);
            if all_there && Instant::now() < settled {
                members.await_news(state.seen(), Wait::until(settled).cancelled_by(&self.stop))?;
                continue;
            }
            let count = usize::try_from(self.partitions.count()).unwrap_or_default();
            members.store_plan(state.version, &plan.next(&numbers, count).text())?;
        }
    }

    fn revoke_others(&self, mine: &[u32]) {
        for kept in self.places.values().filter(|kept| !mine.contains(&kept.place.number)) {
            kept.place.revoke();
        }
    }

    /// Ends what must have been given back by now, and forgets what was, once it may be taken again.
    fn settle(&mut self, mine: &[u32]) {
        let now = Instant::now();
        self.places.retain(|k, kept| {
            if kept.place.due().is_some_and(|due| due <= now) {
                kept.place.end();
            }
            if !kept.place.is_vacant() {
                return true;
            }
            // It does not panic, and has nothing left to do.
            let _ = kept.waiting.take().map(JoinHandle::join);
            let again = *kept.again.get_or_insert(now + PAUSE);
            mine.contains(k) && !kept.place.unwanted.is_cancelled() && again > now
        });
    }

    /// When there is something to do, if nothing changes until then.
    fn next_time(&self) -> Option<Instant> {
        self.places.values().filter_map(|kept| kept.again.or(kept.place.due())).min()
    }

    /// Takes a partition; if another process still owns it, by a thread that waits for it.
    fn take(&mut self, k: u32) -> Result<(), Error> {
        let lock = self.partitions.lock(k);
        let place = Arc::new(Place::new(k, lock.name(), self.grace, &self.bell));
        let mut waiting = None;
        if !place.take(&lock, Wait::once(), &self.deliver)? {
            let (waiter, deliver) = (place.clone(), self.deliver.clone());
            let named = thread::Builder::new().name(place.name.clone());
            let started = named.spawn(move || waiter.wait(&lock, &deliver));
            waiting = Some(started.map_err(|e| {
                let error = Error::new(ErrorKind::Unavailable, &place.name);
                error.because("no thread can be started that waits for it").caused_by(e)
            })?);
        }
        self.places.insert(k, Kept { place, waiting, again: None });
        Ok(())
    }
}

/// Whether the share may go on after this error.
fn may_pass(error: ErrorKind) -> bool {
    use ErrorKind::{LeaseLost, NotReplicated, OutcomeUnknown, Timeout, Unavailable};
    matches!(error, LeaseLost | NotReplicated | OutcomeUnknown | Timeout | Unavailable)
}
