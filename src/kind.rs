//! The extension point: what a kind of lock is.
//!
//! A kind is a rule in Lua, [a few short questions](Kind::RULE) that Redis answers atomically, and a few
//! lines of Rust. Everything else (queueing, waiting, leases, renewal, cancellation, losses, errors) is the
//! engine's, the same for every kind.

/// A kind of lock: implement it to create one of your own.
///
/// ```
/// use redis_concurrent::{Client, Kind, RedisLock, Reentrancy, Sharing};
///
/// /// At most `self.0` holders at a time.
/// #[derive(Clone, Debug)]
/// struct Bulkhead(u32);
///
/// impl Kind for Bulkhead {
///     const NAME: &'static str = "bulkhead";
///     const RULE: &'static str = include_str!("../examples/own_kind.lua");
///     const SHARING: Sharing = Sharing::Shared;
///     const REENTRY: Reentrancy = Reentrancy::Independent;
///
///     fn args(&self) -> String {
///         self.0.to_string()
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let bulkhead: RedisLock<Bulkhead> = client.lock_with_kind("legacy-backend", Bulkhead(2));
///
/// let first = bulkhead.lock()?;
/// let second = bulkhead.lock()?;
/// assert!(bulkhead.try_lock()?.is_none());
/// drop(first);
/// assert!(bulkhead.try_lock()?.is_some());
/// # drop(second);
/// # Ok(())
/// # }
/// ```
pub trait Kind: Send + Sync + 'static {
    /// The kind's name in errors, for instance `"reentrant lock"`.
    const NAME: &'static str;

    /// The rule: Lua source, kept in a file of its own and included by `include_str!`.
    ///
    /// A function begins at the left margin with `function kind.name(` and ends there with `end`. Available
    /// are `K` (the keys; `K[1]` is the kind's state, the others belong to the queue), `F` (the arguments),
    /// `call` (`redis.call`), `now()` (microseconds since 2020, server time), `number()` (the next grant
    /// number), `foreign_key()` (raises `WRONGTYPE`) and `fetch(…)` (a read of the key, which raises that if
    /// the key is of another type).
    ///
    /// | | |
    /// | --- | --- |
    /// | `kind.tag = '…'` | the kind's name in `WRONGTYPE` errors |
    /// | `kind.load(owner)` | reads the state once and drops expired holders → remaining ms and number of `owner`'s hold, or nothing. May be skipped if the key does not exist |
    /// | `kind.try_acquire(w)` | no waiter is ahead: may `w` be admitted? Installs it → `true, number` and perhaps a value, or `false` |
    /// | `kind.release(owner)` | removes it → `true` if it was inside; a second `true` if the state is empty now. May come before `load` and without `now()`; its first write must be one that cannot grow (`DEL`, `HDEL`, `ZREM`), so that a full Redis accepts it |
    /// | `kind.renew(owner, lease)` | → remaining ms, or nothing. Never creates. May come before `load`; its first write must be one that cannot grow, too |
    /// | `kind.next_expiry()` | → ms until the next holder expires, or nothing |
    /// | `kind.holders(from)` | → `{owner, remaining ms, record, …}`; reads only. If there are many, one page, and where the next one begins, which is passed as `from` then |
    /// | `kind.reject(w)`, optional | → why it can never be admitted: one word, hyphens for its spaces, all but letters and digits of a name written `%XX` |
    /// | `kind.class(w)`, optional | its order class, 0 first |
    /// | `kind.can_barge(w)`, optional | may it pass the queue? |
    /// | `kind.is_full()`, optional | → true while no caller can be admitted at all: spares reading the queue. Like `try_acquire`, it may be called without `load` if the key does not exist |
    /// | `kind.on_wait(w)`, optional | it has just taken a queue position, and has to wait |
    /// | `kind.on_leave(w, why)`, optional | a waiter left without a grant |
    /// | `kind.last()`, optional | → the last grant number, if that is not the fence's |
    /// | `kind.transfer(w, from)`, optional | the hold of the owner `from` is `w`'s from now on, for `w.lease` → number and value, or nothing: without it there are no [receipts](crate::Receipt) |
    /// | `kind.update(what, a, b)`, optional | updates by users of its state → a list |
    /// | `kind.describe(from)`, optional | what *inspect* returns about it, page by page → a list; reads only |
    /// | `kind.more()`, optional | → true if `load` has left some expired holders to the next script |
    /// | `kind.whole = true`, optional | a waiter that is admitted by a message gets its whole lease: it is not renewed ([`PassThrough`](Sharing::PassThrough)) |
    ///
    /// `w` is `{owner, lease, args, record}`, all text; `waiter_timeout` and `from` too if it queues. Every
    /// key that it writes must have a time to live, unless it is its users' own state, and no key may be made
    /// from parts: only `K[1]` is its own.
    const RULE: &'static str;

    /// Whether one grant excludes all others.
    const SHARING: Sharing;

    /// What happens when a thread that holds it asks again.
    const REENTRY: Reentrancy;

    /// What a request brings along for the rule (`w.args`): a number of permits, say.
    fn args(&self) -> String {
        String::new()
    }
}

/// A kind of which there is at most one holder at a time, so that its token orders all that is done under it.
pub trait Exclusive: Kind {}

/// How many callers may hold a lock of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// One at a time, in all processes together.
    Exclusive,
    /// As many as the rule admits, each for itself.
    Shared,
    /// As many as the rule admits; threads of one process share a hold, which others may join without asking
    /// Redis for one [local hand-off period](crate::ClientBuilder::local_handoff) after Redis last said so.
    SharedPerProcess,
    /// There are no holders: a caller that is admitted has passed, and there is nothing to give back.
    PassThrough,
}

/// What a thread that holds a lock gets when it asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reentrancy {
    /// The same hold once more; it must be given back as often.
    Counted,
    /// [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock).
    Forbidden,
    /// A hold of its own, if the rule admits it.
    Independent,
}
