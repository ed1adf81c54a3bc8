//! A resource that rejects the writes of a holder whose successors have already written.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{FromRedisValue, ToRedisArgs, ToSingleRedisArg, Value};

use crate::client::{Client, Effect};
use crate::error::{Error, ErrorKind};
use crate::names::Names;
use crate::script::Script;
use crate::settings::check_lease;
use crate::wait::Wait;

/// The highest token, which is also the largest integer in Redis: no token has more than 19 digits.
const HIGHEST: u64 = i64::MAX as u64;

const LOOK: &str = include_str!("../../lua/fenced/look.lua");

static SET: LazyLock<Script> = LazyLock::new(|| admitting(include_str!("../../lua/fenced/set.lua")));
static WHOLE: LazyLock<Script> =
    LazyLock::new(|| Script::plain(&format!("{LOOK}{}", include_str!("../../lua/fenced/whole.lua"))));

/// A value in Redis that accepts a write only with a token not lower than the highest it has seen, so that a
/// holder that was paused for longer than its lease cannot overwrite what a later holder wrote. The handle is
/// cheap to clone; [`Client::fenced`](crate::Client::fenced) creates it.
///
/// The token is that of the guard under which the caller writes, [`Guard::token`](crate::Guard::token). The
/// tokens of one lock grow with each hold, so all writers of a resource must hold the same lock.
///
/// ```
/// use redis_concurrent::{Client, ErrorKind};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let (lock, report) = (client.reentrant_lock("report"), client.fenced("report"));
///
/// let guard = lock.lock()?;
/// report.set(guard.token(), "first draft")?;
/// assert_eq!(report.get::<String>()?.as_deref(), Some("first draft"));
///
/// let error = report.set(guard.token() - 1, "from long ago").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Conflict); // it names both tokens
/// # Ok(())
/// # }
/// ```
///
/// # State in Redis
///
/// The value and the highest token are the users' own state: they stay until [`delete`](Fenced::delete), or
/// for as long as [`expire_after`](Fenced::expire_after) says. A token equal to the highest is accepted, as a
/// holder may write more than once. Two writes with the **same** token take effect in the order in which they
/// reach Redis: a write that failed with `OutcomeUnknown`, or was sent again because its connection broke,
/// may leave a copy that arrives late and restores the older value. If that must not happen, write once per
/// hold.
///
/// Resources outside Redis can be fenced in the same way: [the page on fencing](crate::guide::fencing) has
/// the SQL.
///
/// # Errors of all forms
///
/// `Conflict` if a higher token was seen: the error names both, and the value is not touched. `InvalidInput`
/// for a name that is empty or longer than 1,024 bytes, and for a token above 2^63-1, which no lock issues.
/// `WrongType` if the key is in use by something else. `Unavailable`, `Closed`, `Forked`.
#[derive(Clone)]
pub struct Fenced {
    client: Client,
    name: Arc<str>,
    names: Result<Names, Error>,
}

/// A script of your own that runs only with a token not lower than the highest seen. Created by
/// [`Fenced::script`]; cheap to clone, and best created once.
#[derive(Clone)]
pub struct FencedScript {
    fenced: Fenced,
    script: Result<Arc<Script>, Error>,
}

shows!(Fenced as "Fenced", |it| "name": it.name);

shows!(FencedScript as "FencedScript", |it| "name": it.fenced.name);

impl Client {
    /// The fenced resource `name`: accepts a write only with a token not lower than the highest it has seen.
    /// It may have the same name as the lock that guards it.
    pub fn fenced(&self, name: &str) -> Fenced {
        let names = Names::of("fenced resource", &self.shared().config.namespace, name);
        Fenced { client: self.clone(), name: name.into(), names }
    }
}

impl Fenced {
    /// Sets the value to `value`. Blocks for one request, which may be sent twice, at most the command
    /// timeout.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply: the value may have been written, or may still be. See also
    /// [the type](Fenced#errors-of-all-forms).
    pub fn set(&self, token: u64, value: impl ToSingleRedisArg) -> Result<(), Error> {
        let key = self.names()?.fenced();
        self.admitted((Effect::Sets, &SET), token, &[key, key], value.to_redis_args()).map(drop)
    }

    /// The value as it was last set; `None` if it never was. One request.
    ///
    /// # Errors
    /// `WrongType` also if the value cannot be converted to a `T`. See also [the
    /// type](Fenced#errors-of-all-forms).
    pub fn get<T: FromRedisValue>(&self) -> Result<Option<T>, Error> {
        Ok(self.get_with_token()?.1)
    }

    /// The highest token seen, by a write or a [script](Fenced::script), and the value. One request.
    ///
    /// # Errors
    /// See [`get`](Fenced::get).
    pub fn get_with_token<T: FromRedisValue>(&self) -> Result<(Option<u64>, Option<T>), Error> {
        let (token, value): (_, Value) = self.eval(Effect::Reads, &["get"])?;
        let value = Some(value).filter(|value| *value != Value::Nil).map(redis::from_redis_value).transpose();
        let value = value.map_err(|e| {
            self.error(ErrorKind::WrongType, "the value cannot be converted to the requested type".to_owned())
                .caused_by(e)
        })?;
        Ok((token, value))
    }

    /// Returns a script of your own, to be run with a token: see [`FencedScript::run`].
    ///
    /// `source` is as for `EVAL`. The script sees only the keys and arguments that it is given. It runs
    /// atomically, together with the check of its token, and is not rolled back if it fails.
    pub fn script(&self, source: &str) -> FencedScript {
        let script = if source.starts_with("#!") {
            let why = "a fenced script must not begin with a line of its own starting with #!";
            Err(self.error(ErrorKind::InvalidInput, why.to_owned()))
        } else {
            Ok(Arc::new(admitting(source)))
        };
        FencedScript { fenced: self.clone(), script }
    }

    /// Makes the resource and its highest token expire after `timeout`, whatever is written until then. From
    /// 100 ms to a year. Returns whether there was a resource. One request.
    ///
    /// # Errors
    /// `InvalidInput` for a timeout out of range. `OutcomeUnknown` if Redis did not reply. See also [the
    /// type](Fenced#errors-of-all-forms).
    pub fn expire_after(&self, timeout: Duration) -> Result<bool, Error> {
        check_lease("time to live", timeout).map_err(|why| self.error(ErrorKind::InvalidInput, why))?;
        self.eval(Effect::Adds, &["expire", &timeout.as_millis().to_string()])
    }

    /// Deletes the resource, and forgets its highest token: the next token is accepted, however low. Returns
    /// whether there was a resource. One request, sent once.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply: the resource may have been deleted, or may still be. See also
    /// [the type](Fenced#errors-of-all-forms).
    pub fn delete(&self) -> Result<bool, Error> {
        self.eval(Effect::Adds, &["delete"])
    }

    // ---- underneath ------------------------------------------------------------------------

    fn names(&self) -> Result<&Names, Error> {
        self.names.as_ref().map_err(Clone::clone)
    }

    fn error(&self, kind: ErrorKind, why: String) -> Error {
        Error::new(kind, &self.name).because(why)
    }

    fn read<T: FromRedisValue>(&self, answer: Value) -> Result<T, Error> {
        redis::from_redis_value(answer).map_err(|e| {
            self.error(ErrorKind::Protocol, "unexpected reply from a script".to_owned()).caused_by(e)
        })
    }

    /// Runs an operation on the whole resource.
    fn eval<T: FromRedisValue>(&self, effect: Effect, what: &[&str]) -> Result<T, Error> {
        let keys = [self.names()?.fenced()];
        self.client.eval(&self.name, (effect, &WHOLE), &keys, what, &Wait::forever())
    }

    /// Runs a fenced script and returns its reply.
    fn admitted(
        &self,
        script: (Effect, &Script),
        token: u64,
        keys: &[[&str; 2]],
        args: Vec<Vec<u8>>,
    ) -> Result<Value, Error> {
        if token > HIGHEST {
            let why = format!("a token must be at most {HIGHEST}, got {token}");
            return Err(self.error(ErrorKind::InvalidInput, why));
        }
        let args: Vec<_> = [format!("{token:019}").into_bytes()].into_iter().chain(args).collect();
        let answer = self.client.eval(&self.name, script, keys, &args, &Wait::forever())?;
        // A script that returns nothing is the whole reply's end.
        let (admitted, reply) = match answer {
            Value::Array(mut answer) if !answer.is_empty() => (answer.remove(0), answer.pop()),
            answer => (answer, None),
        };
        let reply = reply.unwrap_or(Value::Nil);
        if self.read(admitted)? {
            return Ok(reply);
        }
        let highest: u64 = self.read(reply)?;
        let why = format!("token {token} is lower than {highest}, the highest seen");
        Err(self.error(ErrorKind::Conflict, why))
    }
}

impl FencedScript {
    /// Runs the script, unless a token higher than this one was seen: in that case, none of it runs. `keys`
    /// and `args` are its `KEYS` and `ARGV` (`None::<&str>` for no arguments). The keys are used exactly as
    /// given; in a cluster they must be in the resource's slot, that of `{name}`. The request is sent once.
    /// Blocks for the command timeout at most.
    ///
    /// ```
    /// # use redis_concurrent::Client;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let client = Client::connect(&server.url())?;
    /// let count = "return redis.call('HINCRBY', KEYS[1], 'shipped', ARGV[1])";
    /// let ship = client.fenced("order:7").script(count);
    /// let lock = client.reentrant_lock("order:7");
    /// let guard = lock.lock()?;
    /// let shipped: u32 = ship.run(guard.token(), &["order:7"], 3)?;
    /// assert_eq!(shipped, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply: the script may have run, or may still run. `Protocol` if the
    /// script failed (`WrongType` on a key of another type): what it had written until then stays, and its
    /// token counts as seen. `Protocol` also if the script has run, but its reply cannot be converted to a
    /// `T`. `InvalidInput` for a source that begins with `#!`. See also [the
    /// type](Fenced#errors-of-all-forms).
    pub fn run<T: FromRedisValue>(
        &self,
        token: u64,
        keys: &[&str],
        args: impl ToRedisArgs,
    ) -> Result<T, Error> {
        let fenced = &self.fenced;
        let script = self.script.as_ref().map_err(Clone::clone)?;
        let keys: Vec<_> =
            [fenced.names()?.fenced()].into_iter().chain(keys.iter().map(|key| [*key, ""])).collect();
        match fenced.admitted((Effect::Adds, script), token, &keys, args.to_redis_args())? {
            Value::ServerError(e) => Err(Client::refused(e).about(&fenced.name)),
            answer => redis::from_redis_value(answer).map_err(|e| {
                let why = "the script has run, but its reply cannot be converted to the requested type";
                fenced.error(ErrorKind::Protocol, why.to_owned()).caused_by(e)
            }),
        }
    }
}

/// Wraps the caller's script in one that runs it only with a token that is high enough. The caller's script
/// comes first, so that the line numbers in its errors are its own, and it sees none of our variables.
pub(crate) fn admitting(source: &str) -> Script {
    let admit = include_str!("../../lua/fenced/admit.lua");
    Script::plain(&format!("local run = function() {source}\nend\n{LOOK}{admit}"))
}
