//! Unit tests of `src/engine/redis/refusal.rs`.

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

/// As servers word it: 7.0, plainly; 6.2 and KeyDB, for a command in a script; 7.2 and later, with the place.
#[test]
fn a_server_that_is_no_primary_is_known_by_what_it_says() {
    for line in [
        "READONLY You can't write against a read only replica.",
        "READONLY You can't write against a read only replica. script: 4b, on @user_script:3.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
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
        "ERR Error running script (call to f_4b): @user_script:9: WRONGTYPE key \"rc:{a: -READONLY b}\" is a string, not a lock",
        "WRONGTYPE key \"rc:{-READONLY }\" is a hash, not a simple lock",
        "LOADING Redis is loading the dataset in memory",
    ] {
        assert!(no_primary(&error(line)).is_none(), "{line}");
    }
    assert!(no_primary(&Value::Nil).is_none() && no_primary(&Value::Array(Vec::new())).is_none());
}

/// A script that deletes a key of a migrating slot, and needs the key again, is stopped there; as worded by
/// 7.0, and by 6.2.
#[test]
fn a_script_that_a_node_stopped_halfway_may_have_written() {
    for line in [
        "ERR Script attempted to access a non local key in a cluster node script: 4b, on @user_script:61.",
        "ERR Error running script (call to f_4b): @user_script:61: Script attempted to access a non local key \
         in a cluster node",
        "ERR Script attempted to execute a command while the cluster is down script: 4b, on @user_script:3.",
    ] {
        let Failure::Unanswered(e) = means(line) else { panic!("{line}") };
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{line}");
    }
}

#[test]
fn what_may_pass_is_known_by_its_code_and_by_nothing_else() {
    for code in [
        "LOADING",
        "BUSY",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "NOSCRIPT",
        "READONLY",
        "MOVED",
        "ASK",
    ] {
        let wrapped = "ERR Error running script (call to f_4b): @user_script:9: @user_script: 9: -";
        for line in [format!("{code} for some reason"), code.to_owned(), format!("{wrapped}{code} no")] {
            let Failure::Later(e) = means(&line) else { panic!("{line}") };
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{line}");
        }
        // Inside a name it has no meaning.
        for line in [
            format!(
                "ERR WRONGTYPE key \"rc:{{{code}}}\" is a set, not a lock script: 4b, on @user_script:3."
            ),
            format!("WRONGTYPE key \"rc:{{{code}}}\" is a set, not a lock"),
            format!("ERR Error running script (call to f_4b): @user_script:9: WRONGTYPE of {code}"),
        ] {
            assert!(matches!(means(&line), Failure::WrongKind(_)), "{line}");
        }
        assert_eq!(means(&format!("ERR no {code}")).error().kind(), ErrorKind::Protocol);
    }
    assert!(matches!(means("ERR max number of clients reached"), Failure::Later(_)));
}

/// In one of our own scripts; in a rule it is its author's mistake.
#[test]
fn an_option_that_a_server_does_not_know_means_that_it_is_too_old() {
    let scripts = crate::script::Scripts::of(include_str!("../../../../lua/simple.lua")).unwrap();
    let error_of = |line: usize| {
        let at = format!("call to f_4b): @user_script:{line}: @user_script: {line}: ERR syntax error");
        let Value::ServerError(e) = error(&format!("ERR Error running script ({at}")) else { unreachable!() };
        refused_script(Some(&scripts.acquire), e.into()).error()
    };
    let all: Vec<_> = (1..100).map(error_of).map(|e| (e.kind(), e.to_string())).collect();
    let ours = all.iter().find(|(_, text)| text.contains("clock.lua")).expect("it has the time");
    assert!(ours.0 == ErrorKind::InvalidInput && ours.1.contains("6.2 is the first"), "{ours:?}");
    let rule = all.iter().find(|(_, text)| text.contains("simple.lua") || text.contains("rule")).unwrap();
    assert!(rule.0 == ErrorKind::InvalidInput && !rule.1.contains("6.2"), "{rule:?}");
}

#[test]
fn without_a_connection_nothing_was_sent() {
    let io = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    assert!(matches!(not_connected(io.into()), Failure::Unsent(_)));
    let on_connecting = |line: &str| {
        let Value::ServerError(e) = error(line) else { unreachable!() };
        not_connected(e.into())
    };
    assert!(matches!(on_connecting("ERR max number of clients reached"), Failure::Unsent(_)));
    let denied = on_connecting("WRONGPASS invalid username-password pair");
    assert!(matches!(&denied, Failure::Denied(e) if !e.is_retryable()));
    for line in ["ERR DB index is out of range", "ERR SELECT is not allowed in cluster mode"] {
        let Failure::Denied(e) = on_connecting(line) else { panic!("{line}") };
        assert!(
            e.kind() == ErrorKind::InvalidInput && e.to_string().contains("no database of this number"),
            "{e}"
        );
    }
}

#[test]
fn what_a_key_is_is_told_without_what_servers_put_around_it() {
    let message = "key \"rc:{a script: b}\" is a reentrant lock, not a simple lock";
    for line in [
        format!("WRONGTYPE {message}"),
        format!("ERR WRONGTYPE {message} script: 4b, on @user_script:3."),
        format!("ERR Error running script (call to f_4b): @user_script:9: WRONGTYPE {message}"),
    ] {
        let error = means(&line).error();
        assert_eq!(format!("{error:#}"), format!("wrong type: {message}"), "{line}");
    }
    // Redis's own message says neither which key it is nor what it contains.
    let own = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for line in [own.to_owned(), format!("{own} script: 4b, on @user_script:3.")] {
        let error = means(&line).error();
        assert_eq!(error.to_string(), "wrong type: a key holds a value of another type");
        assert!(format!("{error:#}").contains("Operation against"), "{error:#}");
    }
}

#[test]
fn a_timeout_says_how_long_was_waited_and_not_what_the_system_calls_it() {
    let timeout = || RedisError::from(std::io::Error::from_raw_os_error(11));
    assert!(timeout().is_timeout());
    for (waited, text) in [
        (Duration::from_secs(2), "2 s"),
        (Duration::from_millis(1500), "1.5 s"),
        (Duration::from_micros(299_700), "300 ms"),
        (Duration::from_micros(1_999_999), "2 s"),
    ] {
        let error = unanswered(timeout(), waited);
        assert_eq!(format!("{error:#}"), format!("unavailable: no answer within {text}: timed out"));
    }
    let Failure::Unsent(error) = not_connected(timeout()) else { panic!("it was sent") };
    assert_eq!(format!("{error:#}"), "unavailable: no connection to Redis in time: timed out");
    let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    assert!(format!("{:#}", unanswered(broken, Duration::MAX)).contains("reset"));
}

#[test]
fn a_right_that_a_script_lacks_is_no_fault_of_ours() {
    for line in [
        "ERR The user executing the script can't run this command or subcommand script: 4b, on @user_script:3.",
        "ERR Error running script (call to f_4b): @user_script:1: @user_script: 1: -NOPERM The user executing \
         the script can't run this command or subcommand",
        "ERR Error running script (call to f_4b): @user_script:13: @user_script: 13: The user executing the \
         script can't run this command or subcommand",
        "ERR Error running script (call to f_4b): @user_script:2: @user_script: 2: The user executing the \
         script can't access at least one of the keys mentioned in the command arguments",
        "ERR ACL failure in script: User app has no permissions to run the 'set' command script: 4b, on \
         @user_script:3.",
    ] {
        let Failure::Never(e) = means(line) else { panic!("{line}") };
        assert!(e.is_unavailable() && !e.is_retryable(), "{line}");
    }
    // If the request never began, there is nothing to settle.
    for line in [
        "EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the 'exec' \
         command",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "NOAUTH Authentication required.",
        "ERR Protocol error: unauthenticated multibulk length",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "DENIED Redis is running in protected mode",
        "ERR unknown command 'WAIT', with args beginning with: '1' '100' ",
        "ERR unknown command `WAIT`, with args beginning with: `1`, `100`, ",
    ] {
        let Failure::Denied(e) = means(line) else { panic!("{line}") };
        assert!(e.is_unavailable() && !e.is_retryable(), "{line}");
    }
    let Failure::Denied(e) = means("ERR This instance has cluster support disabled") else {
        panic!("it had begun")
    };
    assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
    assert_eq!(means("ERR user_script:1: attempt to index nil").error().kind(), ErrorKind::Protocol);
}
