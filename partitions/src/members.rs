//! Members: the processes that are alive, under a name.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use redis_concurrent::kinds::{Kind, Queueing, Reentrancy, Sharing};
use redis_concurrent::{Client, Error, ErrorKind, OwnedGuard, RedisLock, Wait, rule_file};

/// The longest value of a member, in bytes.
const LONGEST_VALUE: usize = 1024;

const RULE: &str = rule_file!("members.lua");

/// The kind of a [`Membership`].
#[derive(Clone, Debug)]
pub struct Joining {
    args: String,
}

impl Kind for Joining {
    const NAME: &'static str = "members";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }

    fn class(&self) -> Option<u8> {
        Some(0)
    }
}

/// The kind of an observer's requests: they wait for a change, and hold nothing.
#[derive(Clone, Debug)]
struct Watching {
    args: String,
}

impl Kind for Watching {
    const NAME: &'static str = "members' observer";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }

    fn class(&self) -> Option<u8> {
        // Those that wait for plans come first: a plan is nothing new to the others.
        Some(if self.args.matches('|').count() == 2 { 0 } else { 1 })
    }
}

/// The processes that are alive, under a name: the handle of one name, cheap to clone and to create.
///
/// A process [joins](Members::join) with a value that others see, its address say. Its membership is a hold with
/// a lease, which the client renews in the background with all its other holds: no thread is started. It ends
/// by [`leave`](Membership::leave), when it is dropped, or when its lease has expired, because the process died,
/// stalled, or could not reach Redis. Any process may ask for the [list](Members::list), or
/// [observe](Members::changes) who comes and goes.
///
/// ```
/// use redis_concurrent::Client;
/// use redis_concurrent_partitions::Members;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let workers = Members::new(&client, "workers");
/// let mut changes = workers.changes();
/// assert!(changes.next().expect("it does not end")?.joined.is_empty());
///
/// let membership = workers.join("10.0.0.7:8080")?;
/// assert_eq!(workers.list()?[0].value, "10.0.0.7:8080");
/// assert_eq!(changes.next().expect("it does not end")?.joined[0].value, "10.0.0.7:8080");
///
/// membership.leave()?; // dropping it does the same
/// assert_eq!(changes.next().expect("it does not end")?.left[0].value, "10.0.0.7:8080");
/// # Ok(())
/// # }
/// ```
///
/// # Requests at rest
///
/// A member sends one renewal per [`renew_every`](redis_concurrent::ClientBuilder::renew_every); an observer
/// that waits, three heartbeats per [waiter timeout](redis_concurrent::ClientBuilder::waiter_timeout).
///
/// # Errors of all forms
///
/// As with [any lock](RedisLock#errors-of-all-forms): `Unavailable` if Redis cannot be reached, `WrongType` if the
/// key is in use by something else, `Closed`, `Forked`, and `InvalidInput` for a name that is empty or longer than
/// 1,024 bytes.
#[derive(Clone)]
pub struct Members {
    lock: RedisLock<Joining>,
    watching: RedisLock<Watching>,
}

/// A member, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Tells this membership from every other one of this name, also from an earlier one of the same process:
    /// later ones have higher numbers.
    pub number: u64,
    /// The value with which it joined.
    pub value: String,
    /// Its process: `client name pid@host`, without the client's name if it has none.
    pub process: String,
    /// When it joined, by the server's clock.
    pub since: SystemTime,
    /// The lease with which it joined.
    pub lease: Duration,
    /// The remaining lease if it is not renewed. (Two lists differ in it.)
    pub remaining: Duration,
}

impl Member {
    /// Parses what the rule says of one member: number, remaining ms, record, value, lease ms.
    fn of(row: &[String]) -> Option<Member> {
        /// 2020-01-01, the origin of numbers, which are in microseconds.
        const EPOCH: Duration = Duration::from_secs(1_577_836_800);
        let [number, remaining, record, value, lease] = row else { return None };
        let number = number.parse().ok()?;
        // `<threads> <pid> <host> <client name>`, and the thread's name after a tab.
        let mut record = record.split('\t').next()?.splitn(4, ' ').skip(1);
        let (pid, host) = (record.next()?, record.next()?);
        let process = format!("{} {pid}@{host}", record.next().unwrap_or_default());
        Some(Member {
            number,
            value: value.clone(),
            process: process.trim_start().to_owned(),
            since: SystemTime::UNIX_EPOCH + EPOCH + Duration::from_micros(number),
            lease: Duration::from_millis(lease.parse().ok()?),
            remaining: Duration::from_millis(remaining.parse().ok()?),
        })
    }
}

/// The state, as the rule describes it.
pub(crate) struct State {
    /// Each member that comes or goes increments it; 0 if there were none for two hours.
    pub(crate) version: u64,
    /// The version for which there is a plan.
    pub(crate) planned: u64,
    /// What the members have agreed on; empty if there are none.
    pub(crate) agreed: String,
    /// The plan, if it was asked for.
    pub(crate) plan: String,
    /// In the order in which they joined.
    pub(crate) members: Vec<Member>,
}

impl State {
    /// What an observer has seen that waits for plans, too.
    pub(crate) fn seen(&self) -> String {
        format!("watch|{}|{}", self.version, self.planned)
    }

    /// Who has agreed on what: `"10.0.0.7" of 4711@host shares 64 partitions`.
    pub(crate) fn disagreement(&self) -> Option<String> {
        let (first, number) = (self.members.first()?, self.agreed.split('-').next()?);
        Some(format!("{:?} of {} shares {number} partitions", first.value, first.process))
    }

    fn of(state: &[String]) -> Option<State> {
        let ([version, planned, agreed, plan], rows) = state.split_at_checked(4)? else { return None };
        let mut members: Vec<_> = rows.chunks(5).map(Member::of).collect::<Option<_>>()?;
        members.sort_by_key(|member| member.number);
        let (version, planned) = (version.parse().ok()?, planned.parse().ok()?);
        Some(State { version, planned, agreed: agreed.clone(), plan: plan.clone(), members })
    }
}

impl Members {
    /// The members of `name`. Sends no request.
    pub fn new(client: &Client, name: &str) -> Members {
        let lock = client.lock_with_kind(name, Joining { args: String::new() });
        Members { lock, watching: client.lock_with_kind(name, Watching { args: String::new() }) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Joins, as a new member that others see as `value`: an address, say; at most 1,024 bytes. Two members may
    /// have the same value. Blocks for one request; while Redis cannot be reached, for the
    /// [unreachable timeout](redis_concurrent::ClientBuilder::unreachable_timeout).
    ///
    /// # Errors
    /// `InvalidInput` for a longer value, `Refused` if there are 512 members. See also [the
    /// type](Members#errors-of-all-forms).
    pub fn join(&self, value: &str) -> Result<Membership, Error> {
        self.join_agreeing("", value, Wait::forever())
    }

    /// Joins those that have agreed on the same, and are refused otherwise. `agreed` has no `|`.
    pub(crate) fn join_agreeing(
        &self,
        agreed: &str,
        value: &str,
        wait: Wait<'_>,
    ) -> Result<Membership, Error> {
        if value.len() > LONGEST_VALUE {
            let why =
                format!("a member's value must have at most {LONGEST_VALUE} bytes, got {}", value.len());
            return Err(self.error(ErrorKind::InvalidInput, &why));
        }
        let joining = self.lock.with_kind(Joining { args: format!("join|{agreed}|{value}") });
        let joined = joining.lock_owned_with(wait)?;
        joined.map(|guard| Membership { guard }).ok_or_else(|| self.error(ErrorKind::Timeout, ""))
    }

    /// The members, in the order in which they joined. One request.
    ///
    /// # Errors
    /// See [the type](Members#errors-of-all-forms).
    pub fn list(&self) -> Result<Vec<Member>, Error> {
        Ok(self.state("", Wait::forever())?.members)
    }

    /// Who is a member, and who comes and goes from then on, as it happens: see [`Changes`].
    pub fn changes(&self) -> Changes {
        Changes { members: self.clone(), seen: None }
    }

    pub(crate) fn state(&self, question: &str, wait: Wait<'_>) -> Result<State, Error> {
        let state: Vec<String> = self.watching.inspect_state(question, wait)?;
        State::of(&state).ok_or_else(|| self.error(ErrorKind::Protocol, "unexpected reply from the rule"))
    }

    /// Stores a plan for the members of that version, unless there is one.
    pub(crate) fn store_plan(&self, version: u64, plan: &str) -> Result<(), Error> {
        self.watching.update_state::<u8>(&["plan", &version.to_string(), plan]).map(drop)
    }

    /// Waits until there is something new to an observer that has seen this much; returns whether there is.
    pub(crate) fn await_news(&self, seen: String, wait: Wait<'_>) -> Result<bool, Error> {
        Ok(self.watching.with_kind(Watching { args: seen }).lock_owned_with(wait)?.is_some())
    }

    pub(crate) fn error(&self, kind: ErrorKind, why: &str) -> Error {
        Error::new(kind, self.name()).because(why)
    }
}

impl fmt::Debug for Members {
    /// Shows the name. The members would take a request: see [`list`](Members::list).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A membership, until it is [left](Membership::leave), dropped, or lost. Its lease is renewed in the background.
/// It may move to another thread, and be kept in a struct.
///
/// It dereferences to its guard: [`lost`](redis_concurrent::Guard::lost) is a token that is cancelled when the
/// others no longer see this member, or will not soon. A loss is final: join again.
#[must_use = "a membership that is not kept is left at once"]
#[derive(Debug)]
pub struct Membership {
    guard: OwnedGuard<Joining>,
}

impl Membership {
    /// Its [number](Member::number).
    pub fn number(&self) -> u64 {
        self.guard.value()
    }

    /// Ends the membership; observers are notified. Blocks for one request, at most the command timeout.
    /// Dropping it does the same, and reports an error to the observer.
    ///
    /// # Errors
    /// Those of [`unlock`](redis_concurrent::Guard::unlock): `LeaseLost` if it was lost before; `OutcomeUnknown` or
    /// `Unavailable` if Redis did not reply: it is sent again in the background until the lease has expired.
    pub fn leave(self) -> Result<(), Error> {
        self.guard.unlock()
    }
}

impl Deref for Membership {
    type Target = OwnedGuard<Joining>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

/// Who comes and goes: an iterator that blocks until the next change, and does not end. Its first item has the
/// members at that time as those that joined.
///
/// Redis notifies an observer of each change; of a member's death it learns when the lease has expired. While it
/// waits, it has a queue position in Redis and sends three heartbeats per waiter timeout: a lost message or a lost
/// connection delays it by no more than one heartbeat. It then reads the *current* members. So each member that
/// comes or goes is told once, several of them perhaps in one change; and one that came and went in between is
/// not told, which [`missed`](Change::missed) says.
#[derive(Debug)]
pub struct Changes {
    members: Members,
    /// The version and the members, as last read.
    seen: Option<(u64, Vec<Member>)>,
}

/// A change of who is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// Those that have joined since the previous change.
    pub joined: Vec<Member>,
    /// Those that were members then, and are not any more.
    pub left: Vec<Member>,
    /// Whether others may have come and gone in between: because this observer was slow, could not reach Redis,
    /// Redis lost its data, or there were no members for more than two hours.
    pub missed: bool,
}

impl Changes {
    /// Waits for the next change as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `None` if the
    /// time is up.
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled. See also [`Members`](Members#errors-of-all-forms). It
    /// can be called again.
    pub fn next_with<'w>(&mut self, wait: impl Into<Wait<'w>>) -> Result<Option<Change>, Error> {
        let wait = wait.into();
        loop {
            let news =
                self.seen.as_ref().map_or("watch".to_owned(), |(version, _)| format!("watch|{version}"));
            if !self.members.await_news(news, wait)? {
                return Ok(None);
            }
            let State { version, members: now, .. } = self.members.state("", wait)?;
            let before = self.seen.replace((version, now.clone()));
            let (seen, before) = before.map_or((None, Vec::new()), |(seen, before)| (Some(seen), before));
            if seen == Some(version) {
                continue;
            }
            let is_in = |list: &[Member], it: &Member| list.iter().any(|other| other.number == it.number);
            let joined: Vec<_> = now.iter().filter(|it| !is_in(&before, it)).cloned().collect();
            let left: Vec<_> = before.into_iter().filter(|it| !is_in(&now, it)).collect();
            let listed = u64::try_from(joined.len() + left.len()).unwrap_or(u64::MAX);
            // The version begins as the first member's number.
            let began = joined.first().map_or(version, |first| first.number - 1);
            let missed = seen.is_some_and(|seen| if seen == 0 { began } else { seen } + listed != version);
            return Ok(Some(Change { joined, left, missed }));
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
