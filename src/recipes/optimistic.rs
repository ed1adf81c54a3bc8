//! Updates without a lock: applied only if no other client has changed the data they are based on.

use std::sync::Arc;
use std::time::Duration;

use redis::{Arg, Cmd, FromRedisValue, Pipeline, ToRedisArgs, Value};

use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::settings::within;
use crate::wait::Wait;

/// The default number of attempts.
const USUAL_ATTEMPTS: u32 = 100;

/// The highest number of attempts. More would amount to spinning forever.
const MOST_ATTEMPTS: u32 = 10_000;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Commands that would change the connection itself, or end the transaction in the middle.
const NOT_IN_AN_UPDATE: &str = "MULTI EXEC DISCARD WATCH UNWATCH AUTH HELLO CLIENT SELECT RESET QUIT \
    SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE MONITOR ASKING READONLY READWRITE SYNC PSYNC";

/// Updates of some keys without a lock: `WATCH`, read, decide, then `MULTI`, write, `EXEC`, which Redis
/// executes only if no client has changed one of the keys since. If one has, the update is tried again after
/// a random pause that grows with each attempt, up to a number of attempts. The handle is cheap to clone;
/// [`Client::optimistic`](crate::Client::optimistic) creates it.
///
/// ```
/// use redis_concurrent::Client;
/// use redis_concurrent::optimistic::Outcome;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// # redis::cmd("SET").arg("stock:42").arg(10).exec(&mut server.connection()?)?;
/// let client = Client::connect(&url)?;
/// let update = client.optimistic(&["stock:42"]).max_attempts(50).run(|read, write| {
///     let left: u32 = read.get("stock:42")?;
///     if left == 0 {
///         return Ok(Outcome::Abort(0)); // sold out: no write, no further attempt
///     }
///     write.set("stock:42", left - 1);
///     Ok(Outcome::Commit(left - 1))
/// })?;
/// assert!(update.committed);
/// println!("{} left, after {} attempts", update.value, update.attempts);
/// # Ok(())
/// # }
/// ```
///
/// # The closure
///
/// The closure is given a [`Snapshot`], to read from Redis, and a [`redis::Pipeline`], to which it adds what
/// must be written, by typed methods (`write.set(…).incr(…)`) or command by command; [`Pipeline::ignore`] and
/// [`Pipeline::atomic`] have no effect here. It **may run more than once**: side effects other than these are
/// not rolled back. It returns an [`Outcome`], with a value of its own for the caller:
///
/// * `Commit`: execute the commands in the pipeline. If there are none, this only checks that everything that
///   was read from the watched keys was valid at the same time.
/// * `Abort`: write nothing, and make no further attempt.
/// * An error, its own ([`Error::new`]) or that of a read: as `Abort`, and the call returns it.
///
/// While the closure runs, it occupies one connection of the client's pool, which is returned without a watch
/// even if the closure panics. So a lock in a closure needs a second one: if the pool has none left, it fails
/// at once with `Unavailable`. Only changes to the handle's own keys count, whatever else the closure reads.
/// It should not write through the snapshot: that would take effect regardless of the outcome. An update whose closure
/// runs while its client is [closed](Client::close) goes on, and may commit; it is not attempted again.
///
/// # When to take a lock instead
///
/// Without a conflict an update costs three round trips, a lock around a read and a write four. But competing
/// writers are not ordered: the last winner can try again at once, and others may lose often. A lock admits
/// each writer in turn. With processes that only increment the same key, and never rest (two cores, loopback,
/// `make figures FIGURES=optimistic`):
///
/// | writers | optimistic: updates/s, p99, longest | under a `simple_lock`: updates/s, p99, longest |
/// | --- | --- | --- |
/// | 1 | 11,100, 0.19 ms, 3 ms | 5,900, 0.31 ms, 4 ms |
/// | 2 | 13,400, 0.37 ms, 381 ms | 5,600, 0.59 ms, 5 ms |
/// | 8 | 16,800, 1.4 ms, 943 ms | 5,300, 2.0 ms, 7 ms |
/// | 16 | 14,400, 7.6 ms, 900 ms | 5,200, 4.4 ms, 9 ms |
/// | 32 | 13,000, 30 ms, 908 ms | 5,200, 9.1 ms, 14 ms |
///
/// So an update is for data that rarely has two writers at a time, or that must not wait for a process that
/// died; where a user waits for a single update, two writers that never rest are enough to prefer a lock.
///
/// # Errors of all forms
///
/// `Conflict` if the attempts or the time are used up, and another client was first each time: no data was
/// changed. `Timeout` if the closure itself finished after the deadline: no data was changed.
/// `OutcomeUnknown` if the reply to `EXEC` was lost: either all of the transaction or none of it was
/// executed, or may still be. `EXEC` is never sent twice; to find out, read again. `OutcomeUnknown` also if
/// Redis, or a proxy, has begun to refuse `MULTI` on a connection that could begin transactions before: the
/// commands may then have run one by one, perhaps over another client's change, as the error says.
///
/// `WrongType` for a command on a key of another type, and `Refused` for a command that Redis rejected for
/// another reason **within** the transaction: Redis does not roll back, so **all its other commands were
/// executed**. The error names the one that was not. A command that Redis did not even queue (because it does
/// not exist, or no memory is left) is reported as `Protocol` or `Unavailable`, and no data was changed.
///
/// `InvalidInput` for no keys or an empty one, for no attempts or more than 10,000, and for commands that
/// affect the connection or the transaction itself (`EXEC`, `SELECT`, `SUBSCRIBE`, …): no data was changed.
/// `Unavailable`, `Closed`, `Forked`.
#[derive(Clone)]
pub struct Optimistic {
    client: Client,
    keys: Arc<[Vec<u8>]>,
    max_attempts: u32,
}

/// The result of an update's closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// Execute what was put into the transaction, unless another client was faster.
    Commit(T),
    /// Write nothing.
    Abort(T),
}

/// The report of a finished update.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report<T> {
    /// What the closure returned in its last run.
    pub value: T,
    /// Whether it was committed and not aborted.
    pub committed: bool,
    /// How often the closure ran.
    pub attempts: u32,
    /// Redis's replies to the commands of the transaction, to be converted with [`redis::from_redis_value`];
    /// empty if it was aborted.
    pub replies: Vec<Value>,
}

/// What an update's closure reads with. All its reads use the connection on which the keys are watched.
pub struct Snapshot<'a> {
    query: &'a mut dyn FnMut(&Cmd) -> Result<Value, Error>,
    name: &'a str,
}

/// The result of a successful attempt: the closure's value, and the replies of `EXEC`, if it was sent.
type Done<T> = (T, Option<Vec<Value>>);

shows!(Optimistic as "Optimistic", |it| "keys": it.name(), "max_attempts": it.max_attempts);

shows!(Snapshot<'_> as "Snapshot", |it| "keys": it.name);

impl Client {
    /// Updates of the values of `keys`, without a lock: read, decide, and write only if no other client has
    /// changed one of them meanwhile. The keys are used exactly as given, without a prefix; in a cluster all
    /// of them must share a slot.
    ///
    /// Creating a handle sends no request and cannot fail: an invalid key is reported by the first call on
    /// it.
    pub fn optimistic<K: AsRef<[u8]>>(&self, keys: &[K]) -> Optimistic {
        let keys = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        Optimistic { client: self.clone(), keys, max_attempts: USUAL_ATTEMPTS }
    }
}

impl Optimistic {
    /// The same updates with at most this many attempts, including the first: from 1 to 10,000. Default 100.
    #[must_use]
    pub fn max_attempts(&self, attempts: u32) -> Self {
        Optimistic { max_attempts: attempts, ..self.clone() }
    }

    /// Runs `update` until it is committed or aborted. Blocks for as long as the attempts take, each of them
    /// three requests of at most the command timeout, with pauses of at most 100 ms between them.
    ///
    /// # Errors
    /// See [the type](Optimistic#errors-of-all-forms).
    pub fn run<T, F>(&self, update: F) -> Result<Report<T>, Error>
    where
        F: FnMut(&mut Snapshot<'_>, &mut Pipeline) -> Result<Outcome<T>, Error>,
    {
        self.run_with(Wait::forever(), update)
    }

    /// Like [`run`](Self::run), but waits as `wait` says (a timeout, a deadline, a token, a [`Wait`]). A zero
    /// timeout makes one attempt. A cancellation ends a pause at once; within an attempt it is noticed until
    /// `EXEC` is sent, and never after that.
    ///
    /// # Errors
    /// `Cancelled`: no data was changed. See also [the type](Optimistic#errors-of-all-forms).
    pub fn run_with<'w, T, F>(&self, wait: impl Into<Wait<'w>>, mut update: F) -> Result<Report<T>, Error>
    where
        F: FnMut(&mut Snapshot<'_>, &mut Pipeline) -> Result<Outcome<T>, Error>,
    {
        let wait = &wait.into();
        let name = self.name();
        let error = |kind, why: &str| Error::new(kind, &name).because(why);
        self.check().map_err(|why| error(ErrorKind::InvalidInput, &why))?;
        let mut backoff = Default::default();
        let mut attempts = 0;
        loop {
            if wait.is_cancelled() {
                return Err(error(ErrorKind::Cancelled, "nothing was written"));
            }
            attempts += 1;
            let began = Moment::now();
            if let Some((value, replies)) = self.once(&name, wait, &mut update)? {
                let committed = replies.is_some();
                return Ok(Report { value, committed, attempts, replies: replies.unwrap_or_default() });
            }
            let last = wait.once || attempts == self.max_attempts;
            if !last {
                // No connection is occupied meanwhile.
                self.client.back_off(&mut backoff, Moment::now().since(began), LONGEST_PAUSE, wait);
            }
            if last || wait.deadline <= Moment::now() {
                let why =
                    format!("another client was faster in each of {attempts} attempts, nothing was written");
                return Err(error(ErrorKind::Conflict, &why));
            }
        }
    }

    // ---- underneath ------------------------------------------------------------------------

    /// The name that its errors show.
    fn name(&self) -> String {
        self.keys.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>().join(", ")
    }

    fn check(&self) -> Result<(), String> {
        if self.keys.is_empty() {
            return Err("an update needs at least one key to watch".to_owned());
        }
        if self.keys.iter().any(Vec::is_empty) {
            return Err("a key must not be empty".to_owned());
        }
        let apart = |key: &&Vec<u8>| {
            self.client.shared().route.slot(key) != self.client.shared().route.slot(&self.keys[0])
        };
        if let Some(other) = self.keys.iter().find(apart) {
            let (first, other) = (String::from_utf8_lossy(&self.keys[0]), String::from_utf8_lossy(other));
            return Err(format!(
                "{first:?} and {other:?} are in different slots of the Redis Cluster: keys that are updated together \
                 need the same hash tag, as in {{stock}}:42"
            ));
        }
        within("max_attempts", self.max_attempts, 1..=MOST_ATTEMPTS)
    }

    /// One attempt. `None` if another client was faster; with replies if it was committed.
    fn once<T>(
        &self,
        name: &str,
        wait: &Wait<'_>,
        update: &mut impl FnMut(&mut Snapshot<'_>, &mut Pipeline) -> Result<Outcome<T>, Error>,
    ) -> Result<Option<Done<T>>, Error> {
        let error = |kind, why: &str| Error::new(kind, name).because(why);
        let mut watching = self.client.watch(&self.keys, wait).map_err(|e| e.about(name))?;
        let mut query = |cmd: &Cmd| watching.query(cmd).map_err(|failure| failure.error().about(name));
        let mut reads = Snapshot { query: &mut query, name };
        let mut write = Pipeline::new();
        let value = match update(&mut reads, &mut write)? {
            Outcome::Commit(value) => value,
            Outcome::Abort(value) => return Ok(Some((value, None))),
        };
        write.cmd_iter().try_for_each(fit).map_err(|why| error(ErrorKind::InvalidInput, &why))?;
        if wait.is_cancelled() {
            return Err(error(ErrorKind::Cancelled, "nothing was written"));
        }
        if wait.deadline <= Moment::now() {
            let why = "the closure finished after the deadline, nothing was written";
            return Err(error(ErrorKind::Timeout, why));
        }
        let Some(answers) = watching.exec(&write).map_err(|e| e.about(name))? else { return Ok(None) };
        all_done(&write, &answers).map_err(|e| e.about(name))?;
        Ok(Some((value, Some(answers))))
    }
}

impl Snapshot<'_> {
    /// The value of `key`, by `GET`. For a key that does not exist, `T` must be an `Option`, or a type that
    /// can be empty. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// See [`query`](Self::query).
    pub fn get<T: FromRedisValue>(&mut self, key: impl ToRedisArgs) -> Result<T, Error> {
        self.query(redis::cmd("GET").arg(key))
    }

    /// Redis's reply to any reading command: `read.query(&Cmd::hget("cart:7", "total"))`. Blocks for one
    /// request, at most the command timeout.
    ///
    /// # Errors
    /// `WrongType` if the key is of another type, or the reply cannot be converted to the requested type.
    /// `InvalidInput` for a command that affects the connection itself. `Unavailable`: no data was changed,
    /// nor will be in this attempt. `Protocol` if Redis rejects the command, or `Unavailable` if it does not have it.
    pub fn query<T: FromRedisValue>(&mut self, cmd: &Cmd) -> Result<T, Error> {
        fit(cmd).map_err(|why| Error::new(ErrorKind::InvalidInput, self.name).because(why))?;
        let value = (self.query)(cmd)?;
        redis::from_redis_value(value).map_err(|e| {
            Error::new(ErrorKind::WrongType, self.name)
                .because("the reply cannot be converted to the requested type")
                .caused_by(e)
        })
    }
}

/// Whether a command may be part of an update; the error says why not.
fn fit(cmd: &Cmd) -> Result<(), String> {
    let Some(Arg::Simple(verb)) = cmd.args_iter().next() else {
        return Err("a command needs a name".to_owned());
    };
    match NOT_IN_AN_UPDATE.split(' ').find(|not| verb.eq_ignore_ascii_case(not.as_bytes())) {
        Some(not) => Err(format!("{not} cannot be part of an update, nothing was written")),
        None => Ok(()),
    }
}

/// Returns an error if a command failed within the transaction: Redis executes all the others regardless.
fn all_done(write: &Pipeline, answers: &[Value]) -> Result<(), Error> {
    let failed = answers.iter().enumerate().find_map(|(i, answer)| match answer {
        Value::ServerError(e) => Some((i, e.clone())),
        _ => None,
    });
    let Some((i, e)) = failed else { return Ok(()) };
    let verb = match write.cmd_iter().nth(i).and_then(|cmd| cmd.args_iter().next()) {
        Some(Arg::Simple(verb)) => String::from_utf8_lossy(verb).into_owned(),
        _ => String::new(),
    };
    let why = format!("command {} of {} ({verb}) failed, the others were executed", i + 1, answers.len());
    let is_wrong_type = Client::refused(e.clone()).kind() == ErrorKind::WrongType;
    let kind = if is_wrong_type { ErrorKind::WrongType } else { ErrorKind::Refused };
    Err(kind.because(why).caused_by(redis::RedisError::from(e)))
}
