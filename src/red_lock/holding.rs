//! A hold: its members, a majority of which must be valid.

use std::sync::Arc;
use std::time::Duration;

use super::node::{Query, Voter, read_all};
use super::servers::{RedLockClient, default_node_timeout};
use crate::cancel::{CancellationToken, Waker};
use crate::clock::Moment;
use crate::engine::call::release::{Stay, begin_release};
use crate::engine::call::warning::{Holds, until};
use crate::engine::call::{held, unlock_failed};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::{Renewed, left};
use crate::engine::state::lock_state::{Terms, Ticket};
use crate::error::{Error, ErrorKind};
use crate::guard::sealed::AnyHold;
use crate::observe::{LockInfo, Span};
use crate::sync::{Mutex, MutexGuard};

/// The grant of one server: an ordinary hold there, renewed like any other.
#[derive(Clone)]
pub(super) struct ServerHold {
    pub(super) node: Arc<Voter>,
    pub(super) entry: Arc<LockEntry>,
    pub(super) ticket: Ticket,
}

impl ServerHold {
    fn remaining(&self, now: Moment) -> Duration {
        held::remaining(&self.entry, self.ticket, now)
    }

    /// Calls `look` when it is lost.
    fn watch(&self, look: Waker, now: Moment) {
        held::lost_token(&self.entry, self.ticket, now).when_cancelled(look);
    }

    /// Releases it without waiting: the renewal thread does it.
    pub(super) fn defer(&self) {
        if let Ok(Some(release)) = begin_release(&self.entry, self.ticket, Stay::Agreed) {
            // No thread waits for the outcome; the observer has been notified.
            let _ = release.deferred();
        }
    }
}

/// What a lock, its attempts and its holds have in common. For these its settings are valid.
#[derive(Clone, Debug)]
pub(super) struct Quorum {
    pub(super) servers: RedLockClient,
    /// The lock's entry for each server, in the order of the servers.
    pub(super) entries: Arc<[Arc<LockEntry>]>,
    pub(super) terms: Terms,
}

impl Quorum {
    pub(super) fn name(&self) -> &str {
        self.entries[0].name()
    }

    /// The node timeout: how long to wait for a reply.
    pub(super) fn limit(&self) -> Duration {
        self.servers.node_timeout.unwrap_or_else(|| default_node_timeout(self.terms.lease))
    }
}

/// What a guard and the replies that are still to come know of a hold.
pub(super) struct Holding {
    quorum: Quorum,
    lost: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// None once it is released.
    members: Vec<ServerHold>,
    /// Too few members were left.
    is_lost: bool,
}

impl State {
    fn is_held(&self) -> bool {
        !self.is_lost && !self.members.is_empty()
    }
}

impl Holding {
    /// A hold of `members`; others may join later.
    pub(super) fn new(quorum: &Quorum, members: Vec<ServerHold>) -> Arc<Holding> {
        let state = Mutex::new(State { members: Vec::new(), is_lost: false });
        let holding = Arc::new(Holding { quorum: quorum.clone(), lost: CancellationToken::new(), state });
        let (look, now) = (holding.look(), Moment::now());
        members.iter().for_each(|member| member.watch(look.clone(), now));
        // A loss until now is seen by who looks first: the attempt.
        holding.state.lock().members = members;
        holding
    }

    /// Locks the state. An error in a forked child, which has no part in its parent's holds.
    fn state(&self, now: Moment) -> Result<MutexGuard<'_, State>, Error> {
        let first = &self.quorum.entries[0];
        first.shared.lock(&self.state, now).map_err(|e| e.about(first.name()))
    }

    /// Adds a server that granted the lock later than the others; or releases that grant, if the hold has ended.
    pub(super) fn joined(self: &Arc<Self>, member: ServerHold) {
        let mut state = self.state.lock();
        if !state.is_held() {
            drop(state);
            return member.defer();
        }
        state.members.push(member.clone());
        drop(state);
        member.watch(self.look(), Moment::now());
    }

    /// Looks whether the hold is lost, as a member is.
    fn look(self: &Arc<Self>) -> Waker {
        let holding = Arc::downgrade(self);
        Arc::new(move || {
            holding.upgrade().map(|holding| holding.remaining());
        })
    }

    /// How long a majority of the members is certain to last. If that is over, reports the loss, and releases
    /// the members that are still valid: they only block other callers.
    pub(super) fn remaining(&self) -> Duration {
        let now = Moment::now();
        let Ok(mut state) = self.state(now) else { return Duration::ZERO };
        if !state.is_held() {
            return Duration::ZERO;
        }
        let mut left: Vec<_> = state.members.iter().map(|member| member.remaining(now)).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        let left = left.get(self.quorum.servers.majority() - 1).copied().unwrap_or_default();
        if left.is_zero() {
            state.is_lost = true;
            let rest = state.members.clone();
            drop(state);
            self.lost.cancel();
            rest.iter().filter(|member| !member.remaining(now).is_zero()).for_each(ServerHold::defer);
        }
        left
    }

    /// The error of a lost hold, derived from the errors of its members.
    fn too_few(&self, errors: Vec<Error>) -> Error {
        let is_closed = count(&errors, ErrorKind::Closed) > count(&errors, ErrorKind::LeaseLost);
        let kind = if is_closed { ErrorKind::Closed } else { ErrorKind::LeaseLost };
        let why = format!("fewer than {} servers still held it", self.quorum.servers.majority());
        Error::new(kind, self.quorum.name()).because(why).perhaps_by(errors.into_iter().next())
    }

    /// Releases the hold; waits for the servers until `deadline`.
    pub(super) fn end(&self, deadline: Moment) -> Result<(), Error> {
        // If the lease has expired, the hold counts as lost, whatever the servers say.
        let was_lost = self.remaining().is_zero();
        let members = std::mem::take(&mut self.state(Moment::now())?.members);
        let outcomes = give_back(&members, deadline);
        let all = outcomes.len();
        let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        let (released, over) =
            (all - errors.len(), count(&errors, ErrorKind::LeaseLost) + count(&errors, ErrorKind::Closed));
        let majority = self.quorum.servers.majority();
        if !was_lost && released >= majority {
            return Ok(());
        }
        // Members on servers that did not reply may still have been valid.
        if was_lost || all - over < majority {
            return Err(self.too_few(errors));
        }
        let why = format!(
            "released on {released} servers, {majority} are needed; the release continues in the background"
        );
        let unknown = Error::new(ErrorKind::OutcomeUnknown, self.quorum.name()).because(why);
        Err(unknown.perhaps_by(errors.into_iter().next()))
    }
}

/// A hold granted by a majority, released when dropped.
pub struct RedLockHold {
    holding: Arc<Holding>,
    _span: Option<Span>,
}

impl RedLockHold {
    pub(super) fn new(holding: Arc<Holding>) -> Self {
        let span = Span::hold(|| LockInfo { kind: "red lock", name: holding.quorum.name(), is_held: true });
        RedLockHold { holding, _span: span }
    }

    /// The number of servers on which the lock is held; 0 once the hold is lost.
    pub(super) fn servers(&self) -> usize {
        let now = Moment::now();
        let is_valid = |m: &&ServerHold| !m.remaining(now).is_zero();
        match self.holding.state(now).as_deref() {
            Ok(state) if state.is_held() => state.members.iter().filter(is_valid).count(),
            _ => 0,
        }
    }
}

impl AnyHold for RedLockHold {
    fn name(&self) -> &str {
        self.holding.quorum.name()
    }

    fn remaining(&self) -> Duration {
        self.holding.remaining()
    }

    fn lost(&self) -> CancellationToken {
        // Checked, so that a loss that has just happened is reported.
        let _ = self.remaining();
        self.holding.lost.clone()
    }

    /// Sets the lease to end `lease` from now, on the servers that granted it. Servers that are down keep their
    /// current lease. Never for longer than the lease, because a server that forgot this hold counts for others
    /// again after one lease.
    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        let quorum = &self.holding.quorum;
        let (longest, majority) = (quorum.terms.lease, quorum.servers.majority());
        let lease = lease.unwrap_or(longest);
        if lease > longest {
            let why = format!(
                "a lease over several servers can be renewed for {longest:?}, its own length, at most, got {lease:?}"
            );
            return Err(Error::new(ErrorKind::InvalidInput, self.name()).because(why));
        }
        let lost = || Error::new(ErrorKind::LeaseLost, self.name());
        let members = self.holding.state(Moment::now())?.members.clone();
        if self.remaining().is_zero() {
            return Err(lost());
        }
        let sent = Moment::now();
        let (mut queries, mut renewed, mut failed) = (Vec::new(), 0, None);
        for ServerHold { node, entry, ticket } in &members {
            match held::owner(entry, *ticket, sent) {
                Ok(owner) => {
                    let renew = commands::renew(entry, owner, lease, false);
                    queries.push(((entry, owner), Query::sent(node, renew, sent)));
                }
                Err(error) => failed = Some(error),
            }
        }
        for ((entry, owner), reply) in read_all(queries, sent, sent.after(quorum.limit())) {
            match held::renewed(entry, owner, sent, lease, Renewed::of(reply)) {
                Ok(()) => renewed += 1,
                Err(error) => failed = Some(error),
            }
        }
        if renewed >= majority {
            return Ok(());
        }
        let why = format!("renewed on {renewed} servers, {majority} are needed");
        let error = match self.remaining().is_zero() {
            true => lost(),
            false => Error::new(ErrorKind::OutcomeUnknown, self.name()).because(why),
        };
        Err(error.perhaps_by(failed))
    }

    fn loss(&self) -> Option<Error> {
        if !self.remaining().is_zero() {
            return None;
        }
        Some(match self.holding.state(Moment::now()).map(|state| state.members.clone()) {
            Ok(members) => {
                let losses = members.iter().filter_map(|m| held::loss(&m.entry, m.ticket));
                self.holding.too_few(losses.collect())
            }
            Err(error) => error,
        })
    }

    fn time_left(&self) -> Holds {
        let key = (Arc::as_ptr(&self.holding).addr(), 0);
        let holding = Arc::downgrade(&self.holding);
        let left = move |margin| {
            let holding = holding.upgrade()?;
            let has_ended = holding.state(Moment::now()).ok()?.members.is_empty();
            (!has_ended).then(|| until(holding.remaining(), margin))
        };
        vec![(key, Arc::new(left))]
    }

    fn release(self) -> Result<(), Error> {
        self.holding.end(Moment::now().after(self.holding.quorum.limit()))
    }
}

shows!(RedLockHold as "Guard", |it| "lock": it.name());

/// Reports an error to the observers of the first server's client, as no caller gets it.
impl Drop for RedLockHold {
    fn drop(&mut self) {
        let holding = &self.holding;
        if holding.state(Moment::now()).is_ok_and(|state| !state.members.is_empty())
            && let Err(error) = holding.end(Moment::now().after(holding.quorum.limit()))
        {
            unlock_failed(&holding.quorum.entries[0], &error);
        }
    }
}

fn count(errors: &[Error], kind: ErrorKind) -> usize {
    errors.iter().filter(|error| error.kind() == kind).count()
}

/// Releases the members, and waits until `deadline` for the servers to confirm. If a server is down or does
/// not reply, the renewal thread releases its member.
pub(super) fn give_back(members: &[ServerHold], deadline: Moment) -> Vec<Result<(), Error>> {
    let (began, all) = (Moment::now(), members.len());
    let (mut leaves, mut outcomes) = (Vec::with_capacity(all), Vec::with_capacity(all));
    for ServerHold { node, entry, ticket } in members {
        let begun = begin_release(entry, *ticket, Stay::Agreed);
        let Ok(Some(release)) = begun else {
            outcomes.push(begun.map(drop));
            continue;
        };
        let leave = commands::leave(entry, &release.leaving, release.next.as_deref());
        // Its server is busy while the next is put together.
        leaves.push((release, Query::sent(node, leave, began)));
    }
    for (release, reply) in read_all(leaves, began, deadline) {
        let left = reply.and_then(|reply| left(&reply.value, release.next.as_deref(), reply.first_by));
        outcomes.push(release.answered(left));
    }
    outcomes
}
