//! A hold: its members, a majority of which must be valid.

use std::sync::Arc;
use std::time::Duration;

use super::member::Member;
use super::release::{defer, give_back};
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::call::unheard;
use crate::engine::entries::entry::LockEntry;
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, MutexGuard};

/// A hold granted by a majority.
pub(super) struct Holding {
    pub(super) lease: Duration,
    /// The node timeout: how long to wait for a reply.
    pub(super) limit: Duration,
    majority: usize,
    lost: CancellationToken,
    /// The lock's entry for the first server.
    first: Arc<LockEntry>,
    state: Mutex<State>,
}

struct State {
    members: Vec<Member>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// Too few members were left.
    Lost,
    /// Released.
    Ended,
}

impl Holding {
    /// A hold of `members`; others may join later.
    pub(super) fn new(
        lease: Duration,
        limit: Duration,
        majority: usize,
        first: Arc<LockEntry>,
        members: Vec<Member>,
    ) -> Arc<Holding> {
        let state = Mutex::new(State { members: members.clone(), phase: Phase::Held });
        let lost = CancellationToken::new();
        let holding = Arc::new(Holding { lease, limit, majority, lost, first, state });
        for member in &members {
            holding.watch(member);
        }
        holding
    }

    /// The lock's name.
    pub(super) fn name(&self) -> &str {
        self.first.name()
    }

    /// Locks the state. An error in a forked child, which has no part in its parent's holds.
    fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        let shared = &self.first.shared;
        shared.lock(&self.state).map_err(|e| e.about(self.name()))
    }

    /// Adds a server that granted the lock later than the others. Returns the member if the hold has ended:
    /// it must be released.
    pub(super) fn joined(self: &Arc<Self>, member: Member) -> Option<Member> {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Some(member);
        }
        state.members.push(member.clone());
        drop(state);
        self.watch(&member);
        None
    }

    /// Watches for the loss of a member.
    fn watch(self: &Arc<Self>, member: &Member) {
        let (holding, at) = (Arc::downgrade(self), member.at);
        held::lost_token(&member.entry, member.ticket).when_cancelled(move || {
            if let Some(holding) = holding.upgrade() {
                holding.member_lost(at);
            }
        });
    }

    fn member_lost(&self, at: usize) {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return;
        }
        let remaining = |m: &Member| if m.at == at { Duration::ZERO } else { m.remaining() };
        let valid = state.members.iter().filter(|m| !remaining(m).is_zero()).count();
        if valid < self.majority {
            state.phase = Phase::Lost;
            let rest = state.members.clone();
            drop(state);
            self.tell_lost(&rest);
        }
    }

    /// Reports the loss, and releases the members that are still valid: they only block other callers.
    fn tell_lost(&self, rest: &[Member]) {
        self.lost.cancel();
        for member in rest.iter().filter(|m| !m.remaining().is_zero()) {
            defer(member);
        }
    }

    /// Like `remaining`, but `None` once the hold was released.
    pub(super) fn left(&self) -> Option<Duration> {
        let ended = self.state().ok()?.phase == Phase::Ended;
        (!ended).then(|| self.remaining())
    }

    /// Why the hold is lost, if it is: the error that releasing it would return.
    pub(super) fn loss(&self) -> Option<Error> {
        if !self.remaining().is_zero() {
            return None;
        }
        Some(match self.members() {
            Ok(members) => {
                self.too_few(members.iter().filter_map(|m| held::loss(&m.entry, m.ticket)).collect())
            }
            Err(error) => error,
        })
    }

    /// The error of a lost hold, derived from the errors of its members.
    fn too_few(&self, errors: Vec<Error>) -> Error {
        let kind = match count(&errors, ErrorKind::Closed) > count(&errors, ErrorKind::LeaseLost) {
            true => ErrorKind::Closed,
            false => ErrorKind::LeaseLost,
        };
        let why = format!("fewer than {} servers still held it", self.majority);
        caused_by_first(Error::new(kind, self.name()).because(why), errors)
    }

    /// How long a majority of the members is certain to last.
    pub(super) fn remaining(&self) -> Duration {
        let Ok(mut state) = self.state() else { return Duration::ZERO };
        if state.phase != Phase::Held {
            return Duration::ZERO;
        }
        let left = self.majority_of(state.members.iter().map(Member::remaining));
        if left.is_zero() {
            state.phase = Phase::Lost;
            let rest = state.members.clone();
            drop(state);
            self.tell_lost(&rest);
        }
        left
    }

    /// How long the longest-lasting majority lasts.
    fn majority_of(&self, left: impl Iterator<Item = Duration>) -> Duration {
        let mut left: Vec<_> = left.collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        left.get(self.majority - 1).copied().unwrap_or_default()
    }

    /// The number of servers on which the lock is held; 0 once the hold is lost.
    pub(super) fn servers(&self) -> usize {
        let Ok(state) = self.state() else { return 0 };
        let valid = |m: &&Member| state.phase == Phase::Held && !m.remaining().is_zero();
        state.members.iter().filter(valid).count()
    }

    pub(super) fn lost(&self) -> CancellationToken {
        // Checked, so that a loss that has just happened is reported.
        let _ = self.remaining();
        self.lost.clone()
    }

    pub(super) fn members(&self) -> Result<Vec<Member>, Error> {
        Ok(self.state()?.members.clone())
    }

    pub(super) fn majority(&self) -> usize {
        self.majority
    }

    /// Reports an error of a dropped guard to the observers of the first server's client, as no caller gets
    /// it.
    pub(super) fn unheard(&self, error: &Error) {
        unheard(&self.first, error);
    }

    /// Releases the hold.
    pub(super) fn end(&self) -> Result<(), Error> {
        self.end_by(Moment::now().after(self.limit))
    }

    /// Releases the hold; waits for the servers until `deadline`.
    pub(super) fn end_by(&self, deadline: Moment) -> Result<(), Error> {
        // If the lease has expired, the hold counts as lost, whatever the servers say.
        let was_lost = self.remaining().is_zero();
        let mut state = self.state()?;
        let members = std::mem::take(&mut state.members);
        state.phase = Phase::Ended;
        drop(state);
        let outcomes = give_back(&members, deadline);
        let all = outcomes.len();
        let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        let (released, over) =
            (all - errors.len(), count(&errors, ErrorKind::LeaseLost) + count(&errors, ErrorKind::Closed));
        if !was_lost && released >= self.majority {
            return Ok(());
        }
        // Members on servers that did not reply may still have been valid.
        if was_lost || all - over < self.majority {
            return Err(self.too_few(errors));
        }
        let why = format!(
            "released on {released} servers, {} are needed; the release continues in the background",
            self.majority
        );
        let unknown = Error::new(ErrorKind::OutcomeUnknown, self.name()).because(why);
        Err(caused_by_first(unknown, errors))
    }
}

fn count(errors: &[Error], kind: ErrorKind) -> usize {
    errors.iter().filter(|error| error.kind() == kind).count()
}

fn caused_by_first(error: Error, sources: Vec<Error>) -> Error {
    match sources.into_iter().next() {
        Some(source) => error.caused_by(source),
        None => error,
    }
}
