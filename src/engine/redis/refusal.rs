//! Redis's error replies, and what they mean: the only table of them.
//!
//! | code | Redis sends it | meaning |
//! | --- | --- | --- |
//! | `LOADING` | while it reads its data after a start | may pass |
//! | `BUSY` | while a script runs for too long | may pass |
//! | `OOM` | while its memory is full | may pass |
//! | `MISCONF` | while it cannot write its data to disk | may pass |
//! | `NOREPLICAS` | while too few replicas are connected (`min-replicas-to-write`) | may pass |
//! | `CLUSTERDOWN`, `TRYAGAIN` | while slots are without a primary, or migrating | may pass |
//! | `MOVED`, `ASK` | as a node of a cluster that does not have the key, or no longer | passes: another node has it |
//! | `NOSCRIPT` | for a script that it does not know, with no time left to send it | no reply in time: may pass; nothing was written |
//! | `ERR max number of clients reached` | on connecting | may pass |
//! | `READONLY`, `MASTERDOWN`, `UNBLOCKED` | as a replica, or on becoming one | may pass; a new connection may lead to the primary |
//! | `NOAUTH`, `WRONGPASS`, `NOPERM`, `DENIED`, `NOPROTO` | to this user, before anything ran | permanent |
//! | `ERR Protocol error: unauthenticated …` | to a user without a password, whose first request is long | permanent |
//! | `ERR unknown command` | for a command that this service does not offer, before anything ran | permanent |
//! | `ERR DB index is out of range`, `ERR SELECT is not allowed in cluster mode` | on connecting, to the database of the URL | permanent |
//! | `ERR This instance has cluster support disabled` | as a server that is not part of a cluster | permanent |
//! | `NOPERM`, or an ACL's words without a code | halfway through a script | permanent, and it may have written |
//! | `EXECABORT` | for a transaction, with the code of the reason why it was discarded | that of the code |
//! | `ERR Script attempted to …` | halfway through a script that needs a key of a migrating slot again | like no reply |
//! | `WRONGTYPE` | for the key of a lock's state, which is in use by something else | permanent, and it wrote nothing |
//! | `WRONGTYPE` | for another key of the lock | permanent, and it may have written |
//! | `ERR syntax error` | in a script of ours, as a Redis before 6.2 | permanent: `connect` would have reported it |
//! | any other | | a bug of ours, or of a rule: reported with its function and line |
//!
//! After an error that may pass, nothing was written: Redis checks for all of these before a script's first
//! write, and no longer after it. A call waits for it to pass as long as it may wait, and otherwise returns
//! `Unavailable` at once; a permanent error is returned at once, and is not retryable. A missing connection
//! is treated like an error that may pass, except for the permanent ones above.

use std::io;
use std::time::Duration;

use redis::{RedisError, ServerError, ServerErrorKind, Value};

use crate::engine::redis::failure::Failure;
use crate::error::{Error, ErrorKind};
use crate::names::SUFFIXES;
use crate::script::{Script, unwrapped};

/// Precedes the number of the script line that an error is from. Servers before 7.0 put it, and more, in
/// front of their own message, code and all.
const AT_LINE: &str = "@user_script:";
const IN_SCRIPT: &str = "Error running script";

/// What `EXEC` puts before the reason why it did not run, which has a code of its own.
const DISCARDED: &str = "Transaction discarded because of: ";

/// How Redis says, without a code, that a script did what its user may not: before 7.2, and since.
const NO_RIGHT_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// How a node of a cluster says, without a code, that a script cannot go on there. Before a script's first
/// command, the same error has a code: `ASK`, `TRYAGAIN`, `CLUSTERDOWN`.
const NOT_HERE_IN_SCRIPT: [&str; 3] = [
    "Script attempted to access a non local key",
    "Script attempted to execute a command while the cluster is down",
    "Script attempted to execute a write command while the cluster is down",
];

/// How our scripts begin the message about a key that is not theirs.
const KEY_IS: &str = "key \"";

/// How Redis says that it does not have a command, or was configured not to have it.
const NO_SUCH_COMMAND: &str = "unknown command";

/// How Redis says `NOAUTH` to a request with many or long arguments.
const NO_PASSWORD: &str = "Protocol error: unauthenticated";

/// What a node of a cluster means that does not have the key.
const ELSEWHERE: &str =
    "another node of the Redis Cluster has the key, or is about to; redis+cluster:// finds it";

/// How a server that is not part of a cluster answers the question for the slots.
const NO_CLUSTER: &str = "This instance has cluster support disabled";

const NO_NODE: &str = "this server is not a node of a Redis Cluster";

/// How a server says that it has no database of this number. A node of a cluster has only one.
const NO_DATABASE: [&str; 3] =
    ["DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode"];

const DATABASES: &str =
    "the server has no database of this number (as many as its configuration says, 16 by default: 0 to 15)";

/// What a server replies to an option that it does not know.
const NO_SUCH_OPTION: &str = "ERR syntax error";

const TOO_MANY_CLIENTS: &str = "max number of clients";

/// How the error begins if no sentinel leads to the primary.
pub(crate) const NO_SENTINEL: &str = "no sentinel leads to the primary";

/// The time was up before there was a connection.
pub(crate) const NO_CONNECTION_IN_TIME: &str = "no connection to Redis in time";

/// The time was up once there was a connection.
pub(crate) const NO_ANSWER_IN_TIME: &str = "no answer from Redis in time";

/// How a server says that it is not the primary. (The last ends a `WAIT` on one that has just been made a replica.)
const NO_PRIMARY: [&str; 3] = ["READONLY", "MASTERDOWN", "UNBLOCKED"];

/// Returns the code and the words of an error. One that a script raises itself is read as if the server had said it.
fn said<'a>(code: &'a str, words: &'a str) -> (&'a str, &'a str) {
    match words.split_once(DISCARDED) {
        Some((_, why)) if code == "EXECABORT" => why.split_once(' ').unwrap_or((why, "")),
        _ if words.starts_with(IN_SCRIPT) => of_script(unwrapped(words).1),
        _ => (code, words),
    }
}

/// Splits the message of a script into code and words. Not every message has a code: one without begins as a
/// sentence does.
fn of_script(message: &str) -> (&str, &str) {
    let (code, words) = message.split_once(' ').unwrap_or((message, ""));
    if code.bytes().all(|b| b.is_ascii_uppercase()) { (code, words) } else { ("", message) }
}

/// Whether the server does not know the command.
pub(crate) fn is_unknown(e: &RedisError) -> bool {
    e.detail().is_some_and(|words| words.starts_with(NO_SUCH_COMMAND))
}

/// Returns what an error of the server means for a caller.
pub(crate) fn refused(e: RedisError) -> Failure {
    refused_script(None, e)
}

/// Returns what an error of the server means for a caller of this script, by the table. An error in the script is
/// reported by the function and the line that its author wrote.
pub(crate) fn refused_script(script: Option<&Script>, e: RedisError) -> Failure {
    let (code, words) = said(e.code().unwrap_or_default(), e.detail().unwrap_or_default());
    let begins = |all: &[&str]| all.iter().any(|begin| words.starts_with(begin));
    match code {
        "LOADING" | "BUSY" | "OOM" | "MISCONF" | "NOREPLICAS" | "CLUSTERDOWN" | "TRYAGAIN" => passes(e),
        _ if NO_PRIMARY.contains(&code) || begins(&[TOO_MANY_CLIENTS]) => passes(e),
        // There was no time left to send the script itself.
        "NOSCRIPT" => {
            Failure::Later(ErrorKind::Unavailable.because(NO_ANSWER_IN_TIME).caused_by(timed_out()))
        }
        "MOVED" | "ASK" => Failure::Later(ErrorKind::Unavailable.because(ELSEWHERE).caused_by(e)),
        // The second is how servers from 7.0 on pass on what our scripts raise.
        _ if code == "WRONGTYPE" || begins(&["WRONGTYPE "]) => wrong_type(script, e),
        // Part of the request may have been executed.
        "NOPERM" if words.contains(AT_LINE) => Failure::Never(rejected(e)),
        _ if begins(&NO_RIGHT_IN_SCRIPT) => Failure::Never(rejected(e)),
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" | "NOPROTO" => Failure::Denied(rejected(e)),
        _ if begins(&NOT_HERE_IN_SCRIPT) => {
            let why = "a node of the Redis Cluster stopped a script halfway";
            Failure::Unanswered(ErrorKind::Unavailable.because(why).caused_by(e))
        }
        _ if begins(&[NO_SUCH_COMMAND, NO_PASSWORD]) => Failure::Denied(rejected(e)),
        _ if begins(&[NO_CLUSTER]) => Failure::Denied(ErrorKind::InvalidInput.because(NO_NODE)),
        _ if begins(&NO_DATABASE) => Failure::Denied(ErrorKind::InvalidInput.because(DATABASES).caused_by(e)),
        _ => Failure::Never(fault(script, e)),
    }
}

fn passes(e: RedisError) -> Failure {
    Failure::Later(ErrorKind::Unavailable.because("Redis cannot serve requests now").caused_by(e))
}

fn wrong_type(script: Option<&Script>, e: RedisError) -> Failure {
    let words = e.detail().unwrap_or_default();
    let (_, message) = unwrapped(words);
    if let Some(at) = message.find(KEY_IS) {
        return Failure::WrongKind(ErrorKind::WrongType.because(&message[at..]));
    }
    let beside = script.and_then(|script| suffix_of(script, words)).filter(|suffix| !suffix.is_empty());
    let key = beside.map_or("a key".to_owned(), |suffix| format!("its key that ends in {suffix:?}"));
    let error = ErrorKind::WrongType.because(format!("{key} holds a value of another type")).caused_by(e);
    // A script may read another key than the state's only after it has written.
    if beside.is_some() { Failure::Never(error) } else { Failure::WrongKind(error) }
}

/// Returns the suffix of the key that a script names, as the last one, in the line that failed.
fn suffix_of(script: &Script, words: &str) -> Option<&'static str> {
    let line = script.source.lines().nth(unwrapped(words).0?.checked_sub(1)?)?;
    let number: usize = line.rsplit_once("K[")?.1.split_once(']')?.0.parse().ok()?;
    SUFFIXES.get(number.checked_sub(1)?).copied()
}

fn rejected(e: RedisError) -> Error {
    ErrorKind::Unavailable.because("Redis rejected the request").caused_by(e).permanent()
}

/// Returns the error of a script: its author's, if it is a kind's rule that failed.
fn fault(script: Option<&Script>, e: RedisError) -> Error {
    let (code, words) = (e.code().unwrap_or_default(), e.detail().unwrap_or_default());
    // An error that a script caught and passed on has no code.
    let message = if code == "ERR" { words.to_owned() } else { format!("{code} {words}") };
    match script.and_then(|script| script.blames(&message)) {
        Some((origin, why)) if !origin.is_rule && why.contains(NO_SUCH_OPTION) => {
            let old = "this server does not know what a script asks of it: Redis 6.2 is the first that does";
            ErrorKind::InvalidInput.because(format!("{old} ({}: {})", origin.place, why.trim()))
        }
        Some((origin, why)) => {
            let kind = if origin.is_rule { ErrorKind::InvalidInput } else { ErrorKind::Protocol };
            Error::new(kind, "").because(format!("{}: {why}", origin.place))
        }
        None => ErrorKind::Protocol.because("Redis rejected the request").caused_by(e),
    }
}

/// Whether a connection broke after it was made, or while it was being made: the server did not reject it.
pub(crate) fn is_broken_off(e: &RedisError) -> bool {
    e.is_io_error() && !e.is_connection_refusal() && !e.is_timeout()
}

/// Whether it is about this client's identity, so that it would be rejected the next time, too.
pub(crate) fn is_denied(e: &RedisError) -> bool {
    e.kind() == redis::ErrorKind::AuthenticationFailed || denial(e).is_some()
}

/// Returns the error, if a server said that it will never serve this client.
fn denial(e: &RedisError) -> Option<Error> {
    e.code()?;
    if let Failure::Denied(error) = refused(e.clone()) { Some(error) } else { None }
}

/// Returns what the [sentinels](crate::engine::redis::sentinels) said of a primary, if they could not lead to it.
pub(crate) fn no_sentinel_leads_there(e: &RedisError) -> Option<&str> {
    use redis::ErrorKind::{AuthenticationFailed, Client, MasterNameNotFoundBySentinel};
    let theirs = matches!(e.kind(), AuthenticationFailed | Client | MasterNameNotFoundBySentinel);
    e.detail().filter(|text| theirs && text.starts_with(NO_SENTINEL))
}

/// Returns what it means for a caller that there is no connection.
pub(crate) fn not_connected(e: RedisError) -> Failure {
    if let Some(no_database) = denial(&e).filter(|error| error.kind() == ErrorKind::InvalidInput) {
        return Failure::Denied(no_database);
    }
    let (denied, unavailable) = (is_denied(&e), ErrorKind::Unavailable);
    let error = match no_sentinel_leads_there(&e) {
        Some(text) => unavailable.because(text),
        None if e.is_timeout() => unavailable.because(NO_CONNECTION_IN_TIME).caused_by(timed_out()),
        None => unavailable.because("no connection to Redis").caused_by(e),
    };
    if denied { Failure::Denied(error.permanent()) } else { Failure::Unsent(error) }
}

/// Returns the error by which a server says that it is not the primary, in this reply or in one of several.
/// The request was not executed, as a replica rejects a script at its first write. A new connection may lead
/// to the primary.
pub(crate) fn no_primary(answer: &Value) -> Option<&ServerError> {
    match answer {
        Value::Array(several) => several.iter().find_map(no_primary),
        Value::ServerError(e) => {
            Some(e).filter(|e| NO_PRIMARY.contains(&said(e.code(), e.details().unwrap_or_default()).0))
        }
        _ => None,
    }
}

/// Whether Redis does not know the script by its SHA1.
pub(crate) fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(e) if e.kind() == Some(ServerErrorKind::NoScript))
}

/// Returns the error for a reply that did not arrive; `within` is how long it was to be waited for.
pub(crate) fn unanswered(e: RedisError, within: Duration) -> Error {
    if e.is_timeout() {
        let why = format!("no answer within {}", spelled(within));
        return ErrorKind::Unavailable.because(why).caused_by(timed_out());
    }
    ErrorKind::Unavailable.because("no answer from Redis").caused_by(e)
}

/// The system's message for a timeout, "Resource temporarily unavailable", would only mislead.
fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

/// `2 s`, `1.5 s`, `300 ms`
fn spelled(time: Duration) -> String {
    let ms = (time.as_secs_f64() * 1000.0).round();
    if ms < 1000.0 { format!("{ms} ms") } else { format!("{} s", ms / 1000.0) }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/refusal.rs"]
mod tests;
