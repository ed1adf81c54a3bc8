//! A hold: its members, a majority of which must be valid.

use std::sync::Arc;
use std::time::Duration;

use super::members::{ServerHold, ask_all, caused_by, give_back};
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::{held, unheard};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::Renewed;
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, MutexGuard};

/// A hold granted by a majority.
pub(super) struct Holding {
    pub(super) lease: Duration,
    /// The node timeout: how long to wait for a reply.
    limit: Duration,
    majority: usize,
    lost: CancellationToken,
    /// The lock's entry for the first server.
    first: Arc<LockEntry>,
    state: Mutex<State>,
}

struct State {
    members: Vec<ServerHold>,
    phase: Status,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
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
        members: Vec<ServerHold>,
    ) -> Arc<Holding> {
        let (lost, state) = (CancellationToken::new(), State { members: Vec::new(), phase: Status::Held });
        let holding = Arc::new(Holding { lease, limit, majority, lost, first, state: Mutex::new(state) });
        holding.state.lock().members.clone_from(&members);
        members.iter().for_each(|member| holding.watch(member));
        holding
    }

    /// The lock's name.
    pub(super) fn name(&self) -> &str {
        self.first.name()
    }

    /// Locks the state. An error in a forked child, which has no part in its parent's holds.
    fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        let shared = &self.first.shared;
        shared.lock(&self.state, Moment::now()).map_err(|e| e.about(self.name()))
    }

    /// Adds a server that granted the lock later than the others; or releases that grant, if the hold has ended.
    pub(super) fn joined(self: &Arc<Self>, member: ServerHold) {
        let mut state = self.state.lock();
        if state.phase != Status::Held {
            drop(state);
            return member.defer();
        }
        state.members.push(member.clone());
        drop(state);
        self.watch(&member);
    }

    /// Watches for the loss of a member.
    fn watch(self: &Arc<Self>, member: &ServerHold) {
        let holding = Arc::downgrade(self);
        held::lost_token(&member.entry, member.ticket).when_cancelled(move || {
            holding.upgrade().map(|holding| holding.remaining());
        });
    }

    /// How long a majority of the members is certain to last. If that is over, reports the loss, and releases
    /// the members that are still valid: they only block other callers.
    pub(super) fn remaining(&self) -> Duration {
        let Some(mut state) = self.state().ok().filter(|state| state.phase == Status::Held) else {
            return Duration::ZERO;
        };
        let mut left: Vec<_> = state.members.iter().map(ServerHold::remaining).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        let left = left.get(self.majority - 1).copied().unwrap_or_default();
        if left.is_zero() {
            state.phase = Status::Lost;
            let rest = state.members.clone();
            drop(state);
            self.lost.cancel();
            rest.iter().filter(|member| !member.remaining().is_zero()).for_each(ServerHold::defer);
        }
        left
    }

    /// Like `remaining`, but `None` once the hold was released.
    pub(super) fn left(&self) -> Option<Duration> {
        let ended = self.state().ok()?.phase == Status::Ended;
        (!ended).then(|| self.remaining())
    }

    /// Why the hold is lost, if it is: the error that releasing it would return.
    pub(super) fn loss(&self) -> Option<Error> {
        if !self.remaining().is_zero() {
            return None;
        }
        let members = self.state().map(|state| state.members.clone());
        let losses = |members: Vec<ServerHold>| {
            self.too_few(members.iter().filter_map(|m| held::loss(&m.entry, m.ticket)).collect())
        };
        Some(members.map_or_else(|error| error, losses))
    }

    /// The error of a lost hold, derived from the errors of its members.
    fn too_few(&self, errors: Vec<Error>) -> Error {
        let kind = match count(&errors, ErrorKind::Closed) > count(&errors, ErrorKind::LeaseLost) {
            true => ErrorKind::Closed,
            false => ErrorKind::LeaseLost,
        };
        let why = format!("fewer than {} servers still held it", self.majority);
        caused_by(Error::new(kind, self.name()).because(why), errors.into_iter().next())
    }

    /// The number of servers on which the lock is held; 0 once the hold is lost.
    pub(super) fn servers(&self) -> usize {
        let Ok(state) = self.state() else { return 0 };
        let valid = |m: &&ServerHold| state.phase == Status::Held && !m.remaining().is_zero();
        state.members.iter().filter(valid).count()
    }

    pub(super) fn lost(&self) -> CancellationToken {
        // Checked, so that a loss that has just happened is reported.
        let _ = self.remaining();
        self.lost.clone()
    }

    /// Reports an error of a dropped guard to the observers of the first server's client, as no caller gets
    /// it.
    pub(super) fn unheard(&self, error: &Error) {
        unheard(&self.first, error);
    }

    /// Sets the lease to end `lease` from now, on the servers that granted it. Servers that are down keep their
    /// current lease.
    pub(super) fn renew(&self, lease: Duration) -> Result<(), Error> {
        let lost = || Error::new(ErrorKind::LeaseLost, self.name());
        let members = self.state()?.members.clone();
        if self.remaining().is_zero() {
            return Err(lost());
        }
        let sent = Moment::now();
        let (mut asked, mut renewed, mut failed) = (Vec::with_capacity(members.len()), 0, None);
        for ServerHold { node, entry, ticket } in members.iter().filter(|m| m.node.away().is_none()) {
            match held::renewing(entry, *ticket, sent) {
                Ok(owner) => asked.push(((entry, owner), node, commands::renew(entry, owner, lease))),
                Err(error) => failed = Some(error),
            }
        }
        for ((entry, owner), reply) in ask_all(asked, sent, sent.after(self.limit)) {
            match held::renewed(entry, owner, sent, lease, Renewed::of(reply)) {
                Ok(()) => renewed += 1,
                Err(error) => failed = Some(error),
            }
        }
        if renewed >= self.majority {
            return Ok(());
        }
        let why = format!("renewed on {renewed} servers, {} are needed", self.majority);
        let error = match self.remaining().is_zero() {
            true => lost(),
            false => Error::new(ErrorKind::OutcomeUnknown, self.name()).because(why),
        };
        Err(caused_by(error, failed))
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
        state.phase = Status::Ended;
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
        Err(caused_by(unknown, errors.into_iter().next()))
    }
}

fn count(errors: &[Error], kind: ErrorKind) -> usize {
    errors.iter().filter(|error| error.kind() == kind).count()
}
