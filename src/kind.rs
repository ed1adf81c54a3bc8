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

    /// The rule: Lua source, kept in a file of its own and taken in by `include_str!`.
    ///
    /// A function begins at the left margin with `function kind.name(` and ends there with `end`.
    /// Given are `K` (the keys; `K[1]` is the kind's state, the others belong to the queue), `F`
    /// (the arguments), `call` (`redis.call`), `now()` (microseconds since 2020, server time),
    /// `number()` (the next grant number) `foreign_key()` (raises `WRONGTYPE`) and
    /// `fetch(…)` (a read of the key, which raises that where the key is of another type).
    ///
    /// | | |
    /// | --- | --- |
    /// | `kind.tag = '…'` | what it is called when the key turns out to be something else |
    /// | `kind.load(owner)` | reads the state once and drops lapsed holders → remaining ms and number of `owner`'s hold, or nothing. A blank state (no key) may skip it |
    /// | `kind.try_acquire(w)` | nobody is ahead: may `w` come in? Installs it → `true, number` and perhaps a value, or `false` |
    /// | `kind.release(owner)` | takes it out → `true` if it was inside; a second `true` if nothing is left of the state. May come before `load` and without `now()`; its first write must be one that cannot grow (`DEL`, `HDEL`, `ZREM`), so that a full Redis takes it |
    /// | `kind.renew(owner, lease)` | → remaining ms, or nothing. Never creates. May come before `load`; its first write must be one that cannot grow, too |
    /// | `kind.next_expiry()` | → ms until the next holder lapses, or nothing |
    /// | `kind.holders(from)` | → `{owner, remaining ms, record, …}`; reads only. Of many a page, and where the next one begins, which comes as `from` then |
    /// | `kind.reject(w)`, optional | → why it can never come in: one word, hyphens for its spaces, all but letters and digits of a name written `%XX` |
    /// | `kind.class(w)`, optional | its order class, 0 first |
    /// | `kind.can_barge(w)`, optional | may it pass the queue? |
    /// | `kind.is_full()`, optional | → true while nobody can come in, whoever it is: spares reading the queue. Like `try_acquire`, a blank state may skip `load` |
    /// | `kind.on_wait(w)`, optional | it has just taken a place, and has to wait |
    /// | `kind.on_leave(w, why)`, optional | a waiter went without a grant |
    /// | `kind.last()`, optional | → the last grant number, where that is not the fence's |
    /// | `kind.transfer(w, from)`, optional | the hold of the owner `from` is `w`'s from now on, for `w.lease` → number and value, or nothing: without it there are no [receipts](crate::Receipt) |
    /// | `kind.update(what, a, b)`, optional | what users do to its state → a list |
    /// | `kind.describe(from)`, optional | what *inspect* tells of it, page by page → a list; reads only |
    /// | `kind.more()`, optional | → true where `load` has left some that lapsed to the next script |
    /// | `kind.whole = true`, optional | who is let in by a message has its whole lease: nobody renews it ([`Passed`](Sharing::PassThrough)) |
    ///
    /// `w` is `{owner, lease, args, record}`, all text; `waiter_timeout` and `from` too where it queues.
    /// Every key that it writes must get a time to live, unless it is its users' own state, and none may be
    /// made from parts: only `K[1]` is its own.
    const RULE: &'static str;

    /// Whether one tenure excludes all others.
    const SHARING: Sharing;

    /// What happens when a thread that holds it asks again.
    const REENTRY: Reentrancy;

    /// What a request brings along for the rule (`w.args`): a number of permits, say.
    fn args(&self) -> String {
        String::new()
    }
}

/// A kind of which there is at most one holder at a time, so that its token orders all that is
/// done under it.
pub trait Exclusive: Kind {}

/// How many may hold a lock of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// One at a time, in all processes together.
    Exclusive,
    /// As many as the rule admits, each for itself.
    Shared,
    /// As many as the rule admits; threads of one process share a hold, which takes newcomers without
    /// asking Redis for one [slice](crate::ClientBuilder::local_handoff) after Redis last said that it may.
    SharedPerProcess,
    /// Nobody holds it: who is let in has passed, and there is nothing to give back.
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
