//! What others see of an election: its leader, the candidates, and each change.

use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Queueing, Reentrancy, Sharing};
use crate::lock::RedisLock;
use crate::lock::holder::token_of;
use crate::lock::inspect::{Process, granted_at};
use crate::wait::Wait;

pub(super) const RULE: &str = rule_file!("../../../lua/election.lua");

/// The kind of an observer's requests: they wait for a change, and hold nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observing {
    /// What it has seen.
    args: String,
}

impl Kind for Observing {
    const NAME: &'static str = "election observer";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }
}

/// The leader of an [`Election`](crate::Election), as recorded in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value of the candidate, or what the leader has [proclaimed since](crate::election::Term::proclaim).
    pub value: String,
    /// The number of its term: see its [token](crate::Guard::token).
    pub term: u64,
    /// Its process, if it left a record.
    pub process: Option<Process>,
    /// The beginning of its term, by the server's clock.
    pub since: SystemTime,
    /// The remaining lease if it is not renewed.
    pub remaining: Duration,
}

impl Leader {
    /// Parses the rule's description: number, version, changes, whether a lease ended, value, record,
    /// remaining ms.
    pub(super) fn of(state: &[String]) -> Option<Leader> {
        let [term, _, _, _, value, record, remaining] = state else { return None };
        let term = term.parse().ok()?;
        Some(Leader {
            value: value.clone(),
            term: token_of(term),
            process: Process::read(record),
            since: granted_at(term),
            remaining: Duration::from_millis(remaining.parse().unwrap_or(0)),
        })
    }
}

/// A candidate that waits: see [`Election::candidates`](crate::Election::candidates).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its value.
    pub value: String,
    /// Its process, if it left a record.
    pub process: Option<Process>,
}

/// The changes of an [election](crate::Election)'s leader, as they happen: an iterator that blocks until the
/// next one, and does not end. The first item is the leader at that time.
///
/// A change is another leader, none, or another [value](crate::election::Term::proclaim) of the same one. A term that
/// is handed on counts as one change; so does the next leader if the observer did not look between the expiry
/// of the previous lease and the new term. Redis notifies the observer of each change; of a leader's death it
/// learns when the lease has expired. While it waits, it has a queue position in Redis, like a thread that
/// waits at a latch, and sends three heartbeats per waiter timeout: a lost message, a lost connection or a
/// restarted server delays it by no more than one heartbeat. It then reads the *current* state, so several
/// changes may be reported as one: [`Change::missed`] says whether they were.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let mut changes = client.election("scheduler").observe();
/// assert!(changes.next().expect("it does not end")?.leader.is_none());
///
/// let term = client.election("scheduler").value("10.0.0.7:8080").campaign()?;
/// let change = changes.next().expect("it does not end")?;
/// assert_eq!(change.leader.map(|leader| leader.value).as_deref(), Some("10.0.0.7:8080"));
/// assert!(!change.missed);
/// # drop(term);
/// # Ok(())
/// # }
/// ```
pub struct Changes {
    pub(super) watching: RedisLock<Observing>,
    pub(super) seen: Option<Seen>,
}

/// The state after a change of an election's leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The leader; `None` if there is none.
    pub leader: Option<Leader>,
    /// Whether there may have been other changes between the previous one and this one: because the observer
    /// was slow, could not reach Redis, or there was no leader for more than two hours.
    pub missed: bool,
}

/// What an observer has seen, as the rule describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The number of the term; 0 if there is no leader.
    number: u64,
    /// The version of the leader's value.
    version: u64,
    changes: u64,
    /// There is no leader, because the lease of the last one expired.
    lapsed: bool,
}

impl Seen {
    fn of(state: &[String]) -> Option<Seen> {
        let at = |i: usize| state.get(i)?.parse().ok();
        Some(Seen { number: at(0)?, version: at(1)?, changes: at(2)?, lapsed: at(3)? == 1 })
    }

    /// Whether there was a change between this and `now`, besides the last one. The expiry of a lease is not
    /// counted, as no client takes part in it.
    fn missed(&self, now: &Seen) -> bool {
        if now.lapsed {
            // Any change that was counted came before the expiry.
            return self.number == 0 || now.changes != self.changes;
        }
        now.changes != self.changes + 1
    }
}

impl Changes {
    /// Waits for the next change as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `None`
    /// if the time is up.
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled. See also [the
    /// election](crate::Election#errors-of-all-forms). It can be called again.
    pub fn next_with<'w>(&mut self, wait: impl Into<Wait<'w>>) -> Result<Option<Change>, Error> {
        let wait = wait.into();
        loop {
            let args = match self.seen {
                None => "watch".to_owned(),
                Some(Seen { number, version, changes, .. }) => format!("watch|{number}|{version}|{changes}"),
            };
            if self.watching.with_kind(Observing { args }).lock_owned_with(wait)?.is_none() {
                return Ok(None);
            }
            let state: Vec<String> = self.watching.inspect_state("", wait)?;
            let unexpected_reply =
                || self.watching.error(ErrorKind::Protocol, "unexpected reply from the rule");
            let now = Seen::of(&state).ok_or_else(unexpected_reply)?;
            let before = self.seen.replace(now);
            if before != Some(now) {
                let missed = before.is_some_and(|before| before.missed(&now));
                return Ok(Some(Change { leader: Leader::of(&state), missed }));
            }
        }
    }
}

impl Iterator for Changes {
    type Item = Result<Change, Error>;

    /// Waits for the next change; never `None`. After an error it can be called again.
    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(Wait::forever()).transpose()
    }
}

shows!(Changes as "Changes", |it| "election": it.watching.name(), "seen": it.seen);
