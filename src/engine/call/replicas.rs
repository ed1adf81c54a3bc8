//! Whether replicas know of a hold, or of the update that ended it: Redis's WAIT.
//!
//! WAIT reports how many replicas have what was written *on its own connection*. The hold may have been
//! granted on another one (of the process that released it), so the lease is first set again on the
//! connection that then waits. Replicas receive writes in the primary's order, so a replica that has this one
//! has the grant.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::{lock, report};
use crate::engine::operations::{commands, replies};
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::{list, number};
use crate::engine::state::lock_state::{Renewal, Terms, Ticket};
use crate::error::{Error, ErrorKind};
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

    /// Makes a write and waits on its connection until the replicas have it. Returns both replies.
    fn after(
        self,
        entry: &LockEntry,
        write: Command<'_>,
        sent: Moment,
        wait: &Wait<'_>,
    ) -> Result<Reply, Failure> {
        // The reply must arrive before the deadline of the call.
        let over = sent.after(self.limit).min(wait.deadline.max(sent));
        let until = wait.limit(over.after(WAIT_LAG), entry.shared.config.command_timeout);
        entry.ask(&[write, Command::replicated(self.n, over)], until)
    }

    /// Reads the reply to WAIT.
    fn acknowledged(self, entry: &LockEntry, answer: Option<&Value>, what: &str) -> Result<(), Error> {
        let Replicas { n, limit } = self;
        let Some(had) = number(answer) else {
            let why = format!("unexpected reply to WAIT: {answer:?}");
            return Err(entry.error(ErrorKind::Protocol.because(why)));
        };
        if usize::try_from(had).is_ok_and(|had| had >= n) {
            return Ok(());
        }
        let why = format!("{had} of {n} replicas acknowledged {what} within {limit:?}");
        Err(entry.error(ErrorKind::NotReplicated.because(why)))
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
    let sent = Moment::now();
    let owner = held::owner(entry, ticket, sent)?;
    let lease = {
        let core = lock(entry)?;
        core.lock_state.grant(owner).map_or(entry.shared.config.lease, |grant| grant.rewrite(sent))
    };
    let reply = replicas.after(entry, commands::renew(entry, owner, lease, false), sent, wait);
    if reply.as_ref().map_or(true, Reply::resent) {
        lock(entry)?.lock_state.doubt(owner, sent, lease);
    }
    let reply = reply.map_err(|failure| entry.error(failure.error()))?;
    let answers = list(&reply.value);
    let renewal = answers.first().map(replies::renewed);
    let renewal = renewal.and_then(Result::ok).unwrap_or(Renewal::Failed);
    report(entry, |state, now| state.renewed(owner, sent, renewal, now));
    // Redis may not know it, or the lease may have expired while the replicas were waited for.
    held::owner(entry, ticket, Moment::now())?;
    replicas.acknowledged(entry, answers.get(1), "the hold")
}

/// Updates the state as [an update](crate::engine::operations::requests::update) does that is not replicated, and waits
/// until that many replicas have it. Returns the rule's reply, and the error if too few have it in time: the update is made
/// all the same.
pub(crate) fn update(
    entry: &Arc<LockEntry>,
    owner: u64,
    what: &[&str],
    replicas: Replicas,
    wait: &Wait<'_>,
) -> Result<(Vec<Value>, Result<(), Error>), Failure> {
    let reply = replicas.after(entry, commands::update(entry, owner, what)?, Moment::now(), wait)?;
    let answers = list(&reply.value);
    let answer = answers.first().map(list).unwrap_or_default().to_vec();
    Ok((answer, replicas.acknowledged(entry, answers.get(1), "the outcome")))
}
