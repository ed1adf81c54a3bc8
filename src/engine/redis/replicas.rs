//! Whether replicas know of a hold: Redis's WAIT.
//!
//! WAIT reports how many replicas have what was written *on its own connection*. The hold may have been
//! granted on another one (of the process that released it), so the lease is first set again on the
//! connection that then waits. Replicas receive writes in the primary's order, so a replica that has this one
//! has the grant.

use std::sync::Arc;
use std::time::Duration;

use redis::{Value, cmd};

use super::answers::{list, number};
use super::{packed, replies};
use crate::clock::Moment;
use crate::engine::entry::LockEntry;
use crate::engine::state::lock_state::{Renewal, Terms, Ticket};
use crate::engine::{carry_out, held, lock, lost};
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::wait::Wait;

/// How late Redis may notice that a WAIT has timed out: it checks ten times a second.
const WAIT_LAG: Duration = Duration::from_millis(100);

/// How many replicas must have a hold, and how long that may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replicas {
    pub(crate) n: usize,
    pub(crate) limit: Duration,
}

impl Replicas {
    /// Checks whether `limit` is possible for holds with this lease; the error says why not.
    fn check(self, lease: Duration) -> Result<(), String> {
        let limit = self.limit;
        if limit < Duration::from_millis(1) || limit >= lease {
            return Err(format!(
                "the timeout for replicas must be at least 1ms and less than the lease of {lease:?}, got {limit:?}"
            ));
        }
        Ok(())
    }
}

/// Checks whether a handle's terms are consistent, in themselves and with the replicas that must have its
/// holds; the error says why not.
pub(crate) fn agree(terms: &Terms, replicas: Option<Replicas>) -> Result<(), String> {
    terms.check()?;
    replicas.map_or(Ok(()), |replicas| replicas.check(terms.lease))
}

/// Waits until that many replicas have the hold `ticket`, which stays valid whatever the result.
///
/// # Errors
/// `NotReplicated` if too few have it in time, `LeaseLost` if it is lost, `Unavailable` if Redis did not
/// reply.
pub(crate) fn have(
    entry: &Arc<LockEntry>,
    ticket: Ticket,
    replicas: Replicas,
    wait: &Wait<'_>,
) -> Result<(), Error> {
    let Replicas { n, limit } = replicas;
    let shared = &entry.shared;
    let sent = Moment::now();
    let owner = held::renewing(entry, ticket, sent)?;
    let lease = {
        let core = lock(entry)?;
        core.lock_state.look(owner).map_or(shared.config.lease, |grant| grant.rewrite(sent))
    };
    // The reply must arrive before the deadline of the call.
    let limit = wait.deadline.map_or(limit, |deadline| limit.min(deadline.since(sent)));
    let over = sent.after(limit);
    // A timeout of 0 would mean forever.
    let left = || over.since(Moment::now()).max(Duration::from_millis(1));
    let asks = || cmd("WAIT").arg(n).arg(left().as_millis() as u64).get_packed_command();
    let pack = |eval: bool| {
        let mut request = Vec::new();
        packed::pack_renew(&mut request, entry, owner, lease, eval);
        request
    };
    let until = wait.limit(over.after(WAIT_LAG), shared.config.command_timeout);
    let answers = entry.follow(until, |server| server.backend.renew_and(pack, asks, until));
    let answers = match answers {
        Ok(reply) if reply.resent => {
            lock(entry)?.lock_state.doubt(owner, sent, lease);
            reply.value
        }
        Ok(reply) => reply.value,
        Err(failure) => {
            lock(entry)?.lock_state.doubt(owner, sent, lease);
            return Err(entry.error(failure.error()));
        }
    };
    let answers = list(&answers);
    let renewal = answers.first().map(replies::renewed);
    let renewal = renewal.and_then(Result::ok).unwrap_or(Renewal::Failed);
    let mut core = lock(entry)?;
    let then = core.lock_state.renewed(owner, sent, renewal, Moment::now());
    carry_out(entry, core, then);
    if renewal.is_over() {
        return Err(entry.error(lost(LossReason::Revoked)));
    }
    // The lease may have expired while the replicas were waited for.
    held::owner(entry, ticket, Moment::now())?;
    let unexpected_reply = |value: Option<&Value>| {
        Error::new(ErrorKind::Protocol, "").because(format!("unexpected reply to WAIT: {value:?}"))
    };
    let had = number(answers.get(1)).ok_or_else(|| entry.error(unexpected_reply(answers.get(1))))?;
    if usize::try_from(had).is_ok_and(|had| had >= n) {
        return Ok(());
    }
    let why = format!("{had} of {n} replicas acknowledged the hold within {limit:?}");
    Err(entry.error(Error::new(ErrorKind::NotReplicated, "").because(why)))
}
