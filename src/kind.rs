//! The extension point: what a kind of lock is.
//!
//! A kind is a rule in Lua, [a few short questions](Kind::RULE) that Redis answers atomically, and a few
//! lines of Rust. Everything else (queueing, waiting, leases, renewal, cancellation, losses, errors) is done
//! by the engine, in the same way for every kind.

/// A kind of lock: implement it to create one of your own.
///
/// The page [Writing a kind](crate::guide::writing_a_kind) is the contract of its rule. The contract suite in
/// the crate `redis-concurrent-testkit` checks that a rule keeps to it.
///
/// ```
/// use redis_concurrent::{Client, RedisLock, rule_file};
/// use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
///
/// /// At most `self.0` holders at a time.
/// #[derive(Clone, Debug)]
/// struct Bulkhead(u32);
///
/// impl Kind for Bulkhead {
///     const NAME: &'static str = "bulkhead";
///     const RULE: &'static str = rule_file!("../examples/own_kind.lua");
///     const SHARING: Sharing = Sharing::Shared;
///     const REENTRANCY: Reentrancy = Reentrancy::Independent;
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

    /// The rule: Lua source, kept in a file of its own and included by [`rule_file!`](crate::rule_file), so
    /// that an error in it is reported with its file and line.
    ///
    /// [Writing a kind](crate::guide::writing_a_kind) says what it defines, what it is given and what it must
    /// adhere to. With a rule that cannot be used, each call returns
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    const RULE: &'static str;

    /// Whether one grant excludes all others.
    const SHARING: Sharing = Sharing::Exclusive;

    /// What happens when a thread that holds the lock asks for it again.
    const REENTRANCY: Reentrancy;

    /// Whether the threads of a process wait for the lock together, or each by itself.
    const QUEUEING: Queueing = Queueing::PerProcess;

    /// Whether the value that the rule adds to a grant is its holder's fencing token, in place of the
    /// library's own: for formats that number their holds. A lock of such a kind is always
    /// [fair](crate::RedisLock::fair), as a hold that is handed on within the process would have no number of
    /// its own.
    const TOKEN_IS_VALUE: bool = false;

    /// The order class of this request, from 0 to 7, for a kind with priorities: waiters of a lower class
    /// come first, those of one class in order of arrival. It must be what the rule's `class(w)` returns for
    /// the same `args`: the rule orders the processes, this method the threads of a process. See
    /// [Priorities](crate::guide::writing_a_kind#priorities).
    fn class(&self) -> Option<u8> {
        None
    }

    /// The request's arguments for the rule (`w.args`): a number of permits, say.
    fn args(&self) -> String {
        String::new()
    }
}

/// A kind with at most one holder at a time, so that its token orders everything that is done under the lock.
pub trait Exclusive: Kind {}

/// How many callers may hold a lock of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// One at a time, in all processes together.
    Exclusive,
    /// As many as the rule admits, each with a hold of its own.
    Shared,
    /// As many as the rule admits; threads of one process share a hold, which further threads may join
    /// without asking Redis for one [local hand-off period](crate::ClientBuilder::local_handoff) after Redis
    /// last allowed it.
    SharedPerProcess,
    /// There are no holders: a caller that is admitted has passed, and there is nothing to give back.
    PassThrough,
}

/// Whether a queue position belongs to a process or to a single call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queueing {
    /// One position for all waiting threads of a process: the first of them asks, the others cost Redis
    /// nothing.
    #[default]
    PerProcess,
    /// Each call has an owner id and a queue position of its own: a message for one waiter (that a barrier is
    /// broken, say) does not concern the next one, and the rule sees and counts each thread. A waiter costs
    /// one request every third of a waiter timeout. No hold is handed on within the process, and
    /// [`Independent`](Reentrancy::Independent) is the only [re-entry](Kind::REENTRANCY) that makes sense.
    PerCaller,
}

/// What a thread that holds a lock gets when it asks for it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reentrancy {
    /// The same hold once more; it must be released as often as it was acquired.
    Counted,
    /// [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock).
    Forbidden,
    /// A hold of its own, if the rule admits it.
    Independent,
}

/// A synchronizer whose callers wait in a queue of this process, as those of a lock do: for code that has a
/// queue of its own before it, such as one of tasks.
pub trait Queued {
    /// Returns a number that identifies the queue: the same for all handles of one client, kind and name as
    /// long as one of them lives. `None` if the synchronizer cannot be used.
    fn queue(&self) -> Option<usize>;
}

/// Includes the [rule](crate::kinds::Kind::RULE) from a file, which is found as by [`include_str!`], so that errors
/// in it are reported with the file and the line.
///
/// ```
/// # use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
/// use redis_concurrent::rule_file;
///
/// # struct Bulkhead;
/// impl Kind for Bulkhead {
///     const RULE: &'static str = rule_file!("../examples/own_kind.lua");
///     // …
/// #   const NAME: &'static str = "bulkhead";
/// #   const SHARING: Sharing = Sharing::Shared;
/// #   const REENTRANCY: Reentrancy = Reentrancy::Independent;
/// }
/// ```
#[macro_export]
macro_rules! rule_file {
    ($path:literal) => {
        concat!("--@ file ", $path, "\n", include_str!($path))
    };
}
