//! What a process does about one partition that it is to own: waits for it, owns it, gives it back.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::crossbeam_channel::Sender;
use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{CancellationToken, Error, ErrorKind, OwnedGuard, RedisLock, Wait};

use crate::partitions::Partition;

/// Wakes the thread of a share.
#[derive(Debug, Default)]
pub(crate) struct Bell(Mutex<CancellationToken>);

impl Bell {
    pub(crate) fn ring(&self) {
        let token = self.0.lock().clone();
        token.cancel();
    }

    /// A token that is cancelled with `stop`, and when the bell rings from now on.
    pub(crate) fn next(&self, stop: &CancellationToken) -> CancellationToken {
        let token = stop.child();
        *self.0.lock() = token.clone();
        token
    }
}

/// A partition that this process is to own, or did until it was revoked.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) number: u32,
    /// The name of its lock.
    pub(crate) name: String,
    /// Cancelled when this process is no longer to own it.
    pub(crate) unwanted: CancellationToken,
    grace: Duration,
    state: Mutex<State>,
    bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// When the grace ends, once it is revoked.
    due: Option<Instant>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Awaited,
    Owned(Held),
    /// It was given back, or is not waited for any more.
    Vacant,
}

#[derive(Debug)]
struct Held {
    guard: OwnedGuard<Reentrant>,
    revoked: CancellationToken,
    lost: CancellationToken,
}

impl Place {
    pub(crate) fn new(number: u32, name: &str, grace: Duration, bell: &Arc<Bell>) -> Place {
        let (unwanted, state) = (CancellationToken::new(), Mutex::default());
        Place { number, name: name.to_owned(), unwanted, grace, state, bell: bell.clone() }
    }

    /// Asks for the partition as `wait` says, and delivers it; returns whether it is not to be asked for any more.
    pub(crate) fn take(
        self: &Arc<Self>,
        lock: &RedisLock<Reentrant>,
        wait: Wait<'_>,
        deliver: &Sender<Partition>,
    ) -> Result<bool, Error> {
        let Some(guard) = lock.lock_owned_with(wait.cancelled_by(&self.unwanted))? else { return Ok(false) };
        let token = guard.token();
        let (revoked, lost) = (guard.ends_within(self.grace).child(), guard.lost().child());
        self.state.lock().phase = Phase::Owned(Held { guard, revoked: revoked.clone(), lost: lost.clone() });
        let partition = Partition { place: self.clone(), token, revoked, lost };
        // Whoever makes it unwanted after this finds that it is owned.
        if !self.unwanted.is_cancelled() {
            // If nobody receives it, it is dropped, and so given back.
            let _ = deliver.send(partition);
        }
        Ok(true)
    }

    /// Waits for the partition, and delivers it, until it is unwanted.
    pub(crate) fn wait(self: &Arc<Self>, lock: &RedisLock<Reentrant>, deliver: &Sender<Partition>) {
        match self.take(lock, Wait::forever(), deliver) {
            Ok(true) => {}
            // It is asked for again if it is still wanted; an error that does not pass then ends the share.
            Ok(false) | Err(_) => self.vacate(|_| {}),
        }
    }

    /// It is no longer to be owned, or waited for: what is owned must be given back within the grace.
    pub(crate) fn revoke(&self) {
        self.unwanted.cancel();
        let mut state = self.state.lock();
        state.due.get_or_insert_with(|| Instant::now() + self.grace);
        let Phase::Owned(held) = &state.phase else { return };
        let revoked = held.revoked.clone();
        drop(state);
        revoked.cancel();
    }

    /// When the grace of what is owned ends.
    pub(crate) fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.due.filter(|_| matches!(state.phase, Phase::Owned(_)))
    }

    /// The grace has ended: so does the hold, and its owner learns that it is lost.
    pub(crate) fn end(&self) {
        self.vacate(|held| {
            held.lost.cancel();
            // Without a reply it is sent again in the background.
            let _ = held.guard.unlock();
        });
    }

    /// Ends the hold, if it was not ended before.
    pub(crate) fn give_back(&self) -> Result<(), Error> {
        let mut ended = Err(Error::new(ErrorKind::LeaseLost, &self.name).because("its grace had ended"));
        self.vacate(|held| ended = held.guard.unlock());
        ended
    }

    fn vacate(&self, end: impl FnOnce(Held)) {
        let phase = mem::replace(&mut self.state.lock().phase, Phase::Vacant);
        if let Phase::Owned(held) = phase {
            end(held);
        }
        self.bell.ring();
    }

    pub(crate) fn is_vacant(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Vacant)
    }

    pub(crate) fn remaining(&self) -> Duration {
        match &self.state.lock().phase {
            Phase::Owned(held) => held.guard.remaining(),
            _ => Duration::ZERO,
        }
    }
}
