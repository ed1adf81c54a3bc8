//! Several locks as one: all of them, or none.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::release::Stay;
use crate::engine::call::several::{Holds, Part, SeveralCall, TWICE};
use crate::engine::call::{held, warning};
use crate::error::{Error, ErrorKind};
use crate::forms::forms;
use crate::guard::sealed::{self, AnyHold, holder};
use crate::guard::{Guard, Ownership};
use crate::kind::{Kind, Sharing};
use crate::lock::holder::{busy, holders_of_either_half, several_busy};
use crate::lock::{RedisLock, this_thread};
use crate::observe::{LockInfo, Span};
use crate::wait::Wait;

/// Several locks that are held together: all of them, or none. They may be of any kinds, and of any clients;
/// both halves of read/write locks and permits (`client.lock_with_kind(name, Permits::of(3)?)`) are locks,
/// too.
///
/// ```
/// use redis_concurrent::{Client, MultiLock};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let (from, to) = (client.reentrant_lock("account:1"), client.reentrant_lock("account:2"));
/// let prices = client.read_write_lock("prices");
///
/// let transfer = MultiLock::new(&[&from, &to, prices.read_lock()]);
/// let guard = transfer.lock()?;
/// let tokens = guard.tokens(); // in the order of the locks; readers have none
/// assert!(tokens[0].is_some() && tokens[1].is_some() && tokens[2].is_none());
/// guard.unlock()?; // dropping it does the same
/// # Ok(())
/// # }
/// ```
///
/// # How it is acquired
///
/// As C++'s `std::lock` does it: a call waits for one lock, in its queue like any other caller, and only
/// tries the rest. If one of these is busy, the call releases everything and waits for that one. So it never
/// waits for one lock while it holds another by this call, and cannot deadlock with other multi-locks, in
/// whatever order they name their locks. A caller that was first in one queue may have to queue again in
/// another: there is no order of arrival across several locks. A lock that this thread already holds is
/// re-entered if its kind allows it, and stays held while the call waits for the others: **the order of locks
/// held outside of it is the caller's responsibility.**
///
/// There is one deadline for all locks; releases that are not done by then continue in the background. The
/// locks are acquired once each, and released in reverse order. Locks of one client and one kind are tried,
/// and released, by one request each time, in one step (on a Redis Cluster, one for each slot): ten names of
/// one client cost two requests, ten names of ten clients twenty. Redis does no other work during such a
/// step, whose duration grows with the number of names.
///
/// # While it is held
///
/// A multi-lock has an ordinary hold of each lock, on the terms of that lock's handle: it is renewed like
/// others, and reported to observers like others. Replicas that [must have a
/// hold](crate::RedisLock::with_replicas) are waited for once all locks are acquired; a [minimum hold
/// time](crate::RedisLock::min_hold) applies only if all were held.
///
/// Its [`Guard`] has the locks' names, joined by ` + `. It is [lost](Guard::lost) when any of its holds is, and
/// [certain to last](Guard::remaining) as long as the hold that ends first; those that were not lost stay held
/// until the guard is released. [`renew_for`](Guard::renew_for) sends one request for each lock,
/// [`unlock`](Guard::unlock) one for those of one client and one kind. Both do so for every lock, whatever fails,
/// and return the first error in the order in which the locks were named.
///
/// # Over several primaries
///
/// Redis replicates after it has replied: if a primary fails before a replica has received a grant, and that
/// replica takes its place, the lock may be granted to a second caller. If that must not happen, use a
/// multi-lock of the same name on several independent primaries, with a client for each: it is held only if
/// every primary granted it, so all of them would have to lose it at once. The price is that every primary
/// must be up.
///
/// # Errors of all forms
///
/// Those of [each lock](crate::RedisLock#errors-of-all-forms), with the name of the lock that failed; no lock
/// is held then. If the time is up, or at the single attempt of `try_lock`, the call returns `None` for a
/// busy lock. `LeaseLost` also if a hold expired before the last lock was acquired. `InvalidInput`, without a
/// request: for no locks at all; for the same lock twice, which includes the two halves of one read/write
/// lock, and handles of two clients of the same server; for a kind that [has no
/// holders](Sharing::PassThrough). (For two clients whose addresses differ, of which one was not [connected at
/// once](crate::ClientBuilder::connect_later), only after requests. A server that may not be asked which one
/// it is counts as one for each address; a call then waits for the lock that it has itself, with pauses.)
#[derive(Clone)]
pub struct MultiLock {
    parts: Result<Vec<Part>, Error>,
    /// The names of all locks.
    name: Arc<str>,
}

impl sealed::HasHold for MultiLock {
    type Hold = MultiHold;
}

impl MultiLock {
    /// Makes one lock of these. That sends no request and cannot fail: if they cannot be held together, every
    /// call on the multi-lock returns the error.
    pub fn new(members: &[&dyn Member]) -> MultiLock {
        let parts: Result<Vec<Part>, Error> = members.iter().map(|member| member.part()).collect();
        let parts = parts.and_then(checked);
        let names: Vec<_> = match &parts {
            Ok(parts) => parts.iter().map(|part| part.entry.name()).collect(),
            Err(error) => vec![error.name()],
        };
        MultiLock { name: names.join(" + ").into(), parts }
    }

    /// The same locks with a fixed lease, as in [`RedisLock::with_lease`](crate::RedisLock::with_lease): each
    /// hold expires by itself and is not renewed in the background. If the thread already holds one of the
    /// locks, that hold keeps its lease. At least 100 ms, at most a year.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> MultiLock {
        let with_lease = |parts: Vec<Part>| parts.into_iter().map(|part| part.with_lease(lease)).collect();
        MultiLock { parts: self.parts.clone().and_then(with_lease), name: self.name.clone() }
    }

    /// The names of the locks, joined by ` + `.
    pub fn name(&self) -> &str {
        &self.name
    }

    forms!(MultiLock);

    // ---- questions -------------------------------------------------------------------------

    /// Returns the error of a caller that did not get all locks in time: a [`Timeout`](ErrorKind::Timeout)
    /// that names the locks that are held, by which processes and for how long, as
    /// [`RedisLock::busy_error`](crate::RedisLock::busy_error) does for one lock. It sends the requests of that method
    /// for each of the locks. A lock that can be shared is in the error, too, while it has holders.
    ///
    /// ```
    /// use redis_concurrent::{Client, MultiLock};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// # let billing = Client::builder().url(&url).client_name("billing").connect()?;
    /// # let _held = billing.reentrant_lock("account:2").lock_owned()?;
    /// # let client = Client::connect(&url)?;
    /// let (from, to) = (client.reentrant_lock("account:1"), client.reentrant_lock("account:2"));
    /// let both = MultiLock::new(&[&from, &to]);
    /// let transfer = both.try_lock()?.ok_or_else(|| both.busy_error());
    /// // "account:1 + account:2": timed out: "account:2" is held by billing 5014@shop-1 for 12.3 s
    /// assert!(transfer.unwrap_err().to_string().contains("\"account:2\" is held by billing "));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "or_who")]
    pub fn busy_error(&self) -> Error {
        let parts = match &self.parts {
            Ok(parts) => parts,
            Err(why) => return busy(&self.name, Err(why.clone())),
        };
        let of = |part: &Part| (format!("{:?} is ", part.entry.name()), holders_of_either_half(part));
        several_busy(&self.name, parts.iter().map(of), |held| match held {
            [] => "one was held, but all are free now".to_owned(),
            held => held.join("; "),
        })
    }

    // ---- underneath ------------------------------------------------------------------------

    fn acquire<O: Ownership>(&self, wait: &Wait<'_>) -> Result<Option<Guard<MultiLock, O>>, Error> {
        let parts = self.parts.as_ref().map_err(Clone::clone)?;
        let thread = this_thread();
        let outcome = SeveralCall { parts, holder: holder::<O>(thread), thread, wait }.acquire();
        let holds =
            outcome.map_err(|error| if error.name().is_empty() { error.about(&self.name) } else { error })?;
        Ok(holds.map(|holds| Guard::new(MultiHold::new(self.name.clone(), holds))))
    }
}

/// Checks that these locks can be held together.
fn checked(parts: Vec<Part>) -> Result<Vec<Part>, Error> {
    if parts.is_empty() {
        return Err(ErrorKind::InvalidInput.because("a multi-lock needs at least one lock"));
    }
    let mut by_key: HashMap<_, Vec<&Part>> = HashMap::new();
    for part in &parts {
        let same_key = by_key.entry(part.entry.names.key()).or_default();
        let why = if same_key.iter().any(|other| part.entry.is_same_key(&other.entry)) {
            TWICE
        } else if part.entry.shape.sharing == Sharing::PassThrough {
            "a lock of this kind has no holders, so it cannot be part of a multi-lock"
        } else {
            same_key.push(part);
            continue;
        };
        return Err(part.entry.error(ErrorKind::InvalidInput.because(why)));
    }
    Ok(parts)
}

impl<O: Ownership> Guard<MultiLock, O> {
    /// Returns one guard of these locks and, after them, of those of `other`, which are released first.
    pub fn joined(self, other: Self) -> Self {
        let (one, other) = (self.hold, other.hold);
        let name = format!("{} + {}", one.name, other.name);
        Guard::new(MultiHold::new(name.into(), one.holds.joined(other.holds)))
    }

    /// The fencing tokens, in the order in which the locks were named; `None` for a lock that is not
    /// exclusive. See [`token`](Guard::token).
    pub fn tokens(&self) -> Vec<Option<u64>> {
        self.hold.holds.iter().map(|held| held.token()).collect()
    }

    /// Releases all locks, but leaves them in Redis for `rest` from now: see
    /// [`unlock_staying`](Guard::unlock_staying) of a single lock.
    ///
    /// # Errors
    /// See [`unlock_staying`](Guard::unlock_staying) of a single lock.
    pub fn unlock_staying(self, rest: Duration) -> Result<(), Error> {
        let stay = Stay::for_rest(rest, self.name())?;
        self.hold.release_as(stay)
    }
}

shows!(MultiLock as "MultiLock", |it| "name": it.name);

/// A hold of each of several locks.
pub struct MultiHold {
    /// The names of all locks.
    name: Arc<str>,
    holds: Holds,
    /// Cancelled when any of the holds is lost; made on first use, then kept, as callers have clones.
    lost: OnceLock<CancellationToken>,
    _span: Option<Span>,
}

impl AnyHold for MultiHold {
    fn name(&self) -> &str {
        &self.name
    }

    fn remaining(&self) -> Duration {
        let now = Moment::now();
        let each = self.holds.iter().map(|held| held::remaining(&held.entry, held.ticket, now));
        each.min().unwrap_or_default()
    }

    fn lost(&self) -> CancellationToken {
        let each = || self.holds.iter().map(|held| held::lost_token(&held.entry, held.ticket, Moment::now()));
        // Checked again each time, so that a loss that has just happened is reported.
        if let Some(lost) = each().find(CancellationToken::is_cancelled) {
            return lost;
        }
        let any = || {
            let any = CancellationToken::new();
            each().for_each(|lost| lost.cancels(&any));
            any
        };
        self.lost.get_or_init(any).clone()
    }

    /// Renews each hold; returns the first error, in the order of the locks.
    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        let wait = Wait::forever();
        let renewed = self.holds.iter().map(|held| held::renew(&held.entry, held.ticket, lease, &wait));
        renewed.fold(Ok(()), Result::and)
    }

    fn release(self) -> Result<(), Error> {
        self.release_as(Stay::Agreed)
    }

    fn loss(&self) -> Option<Error> {
        self.holds.iter().find_map(|held| held::loss(&held.entry, held.ticket))
    }

    fn time_left(&self) -> warning::Holds {
        self.holds.iter().map(|held| held::time_left(&held.entry, held.ticket)).collect()
    }
}

impl MultiHold {
    fn new(name: Arc<str>, holds: Holds) -> Self {
        let span = Span::hold(|| LockInfo { kind: "multi-lock", name: &name, is_held: true });
        MultiHold { name, holds, lost: OnceLock::new(), _span: span }
    }

    fn release_as(mut self, stay: Stay) -> Result<(), Error> {
        self.holds.release(stay).map_err(|(_, error)| error)
    }
}

shows!(MultiHold as "MultiHold", |it| "holds": {
    it.holds.iter().map(|held| (&held.entry, held.token())).collect::<Vec<_>>()
});

/// A lock that may be part of a [`MultiLock`]: a [`RedisLock`] of any kind and any client.
/// This trait is sealed.
pub trait Member: part::AsPart {}

impl<K: Kind> Member for RedisLock<K> {}

mod part {
    pub trait AsPart {
        fn part(&self) -> Result<super::Part, super::Error>;
    }
}

impl<K: Kind> part::AsPart for RedisLock<K> {
    fn part(&self) -> Result<Part, Error> {
        RedisLock::part(self).cloned()
    }
}
