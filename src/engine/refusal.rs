//! What Redis says no with, and what that means.

use redis::{RedisError, ServerError, ServerErrorKind, Value};

use super::backend::{Failure, list};
use crate::error::{Error, ErrorKind};

/// How servers before 7.0 begin to say that a command of a script was refused, and what stands before the line
/// that it is in: behind that its own words, code and all.
const IN_SCRIPT: &str = "Error running script";
const AT_LINE: &str = "@user_script: ";

/// How Redis says, without a code, that a script called what its user may not: before 7.2, and since.
const NO_RIGHT_IN_SCRIPT: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// What an error of the server means for a caller.
pub(crate) fn refused(e: RedisError) -> Failure {
    let text = e.to_string();
    // Inside a script older servers wrap the code into their own text.
    let says = |codes: &[&str]| codes.iter().any(|code| e.code() == Some(code) || text.contains(code));
    if says(&["WRONGKIND", "WRONGTYPE"]) {
        let error = Error::new(ErrorKind::WrongKind, "").because("the key is in use by something else");
        return Failure::Never(error.caused_by(e));
    }
    let error = Error::new(ErrorKind::Unavailable, "");
    if says(&["NOSCRIPT", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY"]) {
        return Failure::Later(error.because("Redis cannot serve us now").caused_by(e));
    }
    if says(&["OOM", "MISCONF", "NOREPLICAS", "NOPERM", "NOAUTH", "WRONGPASS"]) || says(&NO_RIGHT_IN_SCRIPT) {
        return Failure::Never(error.because("Redis refused the request").caused_by(e));
    }
    Failure::Never(Error::new(ErrorKind::Protocol, "").because("Redis refused a script").caused_by(e))
}

/// The words of a server that is no primary, or one of several answers is: nothing of the request was carried
/// out, and perhaps a new connection leads to the primary. A replica refuses a script at its first write.
pub(crate) fn no_primary(answer: &Value) -> Option<&ServerError> {
    let refusal = |value: &Value| matches!(value, Value::ServerError(e) if is_no_primary(e));
    let said = std::iter::once(answer).chain(list(answer)).find(|value| refusal(value))?;
    if let Value::ServerError(e) = said { Some(e) } else { None }
}

fn is_no_primary(e: &ServerError) -> bool {
    let in_script = || {
        let (_, at) = e.details().filter(|text| text.starts_with(IN_SCRIPT))?.split_once(AT_LINE)?;
        at.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(": -")
    };
    matches!(e.kind(), Some(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
        || in_script().is_some_and(|says| says.starts_with("READONLY ") || says.starts_with("MASTERDOWN "))
}

/// There was no answer.
pub(crate) fn unanswered(e: RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, "").because("no answer from Redis").caused_by(e)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn error(line: &str) -> Value {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        assert!(matches!(value, Value::ServerError(_)), "{line}");
        value
    }

    fn means(line: &str) -> Failure {
        let Value::ServerError(e) = error(line) else { unreachable!() };
        refused(e.into())
    }

    /// As servers say it: 7.0, plainly; 6.2 and KeyDB, of a command in a script; 7.2 and later, with where.
    #[test]
    fn a_server_that_is_no_primary_is_known_by_what_it_says() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "READONLY You can't write against a read only replica. script: 4b, on @user_script:3.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR Error running script (call to f_4b): @user_script:61: @user_script: 61: -READONLY You can't \
             write against a read only replica.",
            "ERR Error running script (call to f_4b): @user_script:3: @user_script: 3: -MASTERDOWN Link with \
             MASTER is down and replica-serve-stale-data is set to 'no'.",
        ] {
            assert!(no_primary(&error(line)).is_some(), "{line}");
            assert!(no_primary(&Value::Array(vec![Value::Int(1), error(line)])).is_some(), "{line}");
            let Failure::Later(e) = means(line) else { panic!("{line}") };
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{line}");
        }
        for line in [
            "ERR Error running script (call to f_4b): @user_script:9: @user_script: 9: -OOM command not allowed",
            "ERR Error running script (call to f_4b): @user_script:9: WRONGKIND rc:{a: -READONLY b} does not hold a lock",
            "WRONGKIND rc:{-READONLY } does not hold a simple lock",
            "LOADING Redis is loading the dataset in memory",
        ] {
            assert!(no_primary(&error(line)).is_none(), "{line}");
        }
        assert!(no_primary(&Value::Nil).is_none() && no_primary(&Value::Array(Vec::new())).is_none());
    }

    #[test]
    fn a_right_that_a_script_lacks_is_no_fault_of_ours() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "ERR The user executing the script can't run this command or subcommand script: 4b, on @user_script:3.",
            "ERR Error running script (call to f_4b): @user_script:1: @user_script: 1: -NOPERM The user executing \
             the script can't run this command or subcommand",
            "ERR ACL failure in script: User app has no permissions to run the 'set' command script: 4b, on \
             @user_script:3.",
        ] {
            let Failure::Never(e) = means(line) else { panic!("{line}") };
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{line}");
        }
        assert_eq!(means("ERR user_script:1: attempt to index nil").error().kind(), ErrorKind::Protocol);
    }
}
