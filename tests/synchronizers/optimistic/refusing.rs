//! What an update cannot do: it says so, and what was done of it.

use std::collections::HashMap;
use std::time::Instant;

use redis::{Cmd, Commands, Connection, cmd};
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{Client, ErrorKind};

use crate::optimistic::fixture::*;
use crate::support::*;

#[test]
fn keys_and_tries_that_cannot_work_are_told_by_the_call_with_nothing_sent() {
    let it = Fixture::new();
    let client = &it.client;
    let bad = [
        (client.optimistic::<&str>(&[]), "at least one key"),
        (client.optimistic(&[""]), "must not be empty"),
        (client.optimistic(&[KEY, ""]), "must not be empty"),
        (client.optimistic(&[KEY]).max_attempts(0), "got 0"),
        (client.optimistic(&[KEY]).max_attempts(10_001), "got 10001"),
        (client.optimistic(&[KEY]).max_attempts(u32::MAX), "and 10000, got"),
    ];
    for (it, why) in bad {
        let error = it.run(|_, _| -> Result<Outcome<()>, _> { panic!("it ran") }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(client.request_count(), 0);
}

#[test]
fn keys_are_the_user_s_own_byte_for_byte() {
    let mut it = Fixture::new();
    let odd: [&[u8]; 4] = [b"\xff\0", b"{a}{b}", b"%7B ", "ключ".as_bytes()];
    let update = it.client.optimistic(&odd).max_attempts(1).run(|_, write| {
        for key in odd {
            write.set(key, "x");
        }
        Ok(Outcome::Commit(()))
    });
    update.unwrap();
    for key in odd {
        let error = it.client.optimistic(&[key]).max_attempts(1).run(|_, write| {
            it.redis.set::<_, _, ()>(key, "y").unwrap();
            write.set(key, "z");
            Ok(Outcome::Commit(()))
        });
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Conflict, "{key:?} is not watched");
    }
}

#[test]
fn a_value_of_another_type_is_told() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    it.redis.hset::<_, _, _, ()>("hash", "field", 1).unwrap();
    it.set("text", "many");
    for key in ["hash", "text", "missing"] {
        let error = it.client.optimistic(&[key]).run(|read, _| Ok(Outcome::Commit(read.get::<u32>(key)?)));
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, key), "{error}");
    }
    let whole = it
        .client
        .optimistic(&["hash"])
        .run(|read, _| Ok(Outcome::Commit(read.query::<HashMap<String, u8>>(&Cmd::hgetall("hash"))?)));
    assert_eq!(whole.unwrap().value["field"], 1);
    it.comes_back(connections);
}

#[test]
fn a_command_that_fails_within_is_told_though_the_others_are_done() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    it.set("text", "many");
    let cases = [(Cmd::rpush("text", 1), ErrorKind::WrongType), (Cmd::incr("text", 1), ErrorKind::Refused)];
    for (i, (failing, kind)) in cases.into_iter().enumerate() {
        let error = it.client.optimistic(&[KEY]).run(|_, write| {
            write.set(KEY, i).add_command(failing.clone()).set("last", i);
            Ok(Outcome::Commit(()))
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("command 2 of 3"), "{error}");
        assert_eq!((it.get(KEY), it.get("last")), (Some(i.to_string()), Some(i.to_string())));
    }
    it.comes_back(connections);
}

#[test]
fn a_command_that_redis_does_not_take_changes_nothing() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    let error = it.client.optimistic(&[KEY]).run(|_, write| {
        write.set(KEY, 1).cmd("NOSUCH");
        Ok(Outcome::Commit(()))
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a server that does not offer it: {error}");
    assert!(format!("{error:#}").contains("NOSUCH"), "{error:#}");
    assert_eq!(it.get(KEY), None);
    it.comes_back(connections);
}

#[test]
fn what_is_the_connection_s_own_affair_is_no_part_of_it() {
    let mut it = Fixture::new();
    let connections = it.proxy.connections() + 1;
    for verb in [
        "exec",
        "EXEC",
        "Discard",
        "MULTI",
        "WATCH",
        "unwatch",
        "SELECT",
        "client",
        "SUBSCRIBE",
        "unsubscribe",
        "PUNSUBSCRIBE",
        "SUNSUBSCRIBE",
        "reset",
    ] {
        let read = it.client.optimistic(&[KEY]).run(|read, _| {
            read.query::<()>(&cmd(verb))?;
            Ok(Outcome::Commit(()))
        });
        let write = it.client.optimistic(&[KEY]).run(|_, write| {
            write.set(KEY, 1).cmd(verb).set(KEY, 2);
            Ok(Outcome::Commit(()))
        });
        for error in [read.unwrap_err(), write.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(&verb.to_uppercase()), "{error}");
        }
        assert_eq!(it.get(KEY), None, "{verb}");
    }
    it.comes_back(connections);
}

/// Without the right to begin a transaction its commands would be done one by one, come what may.
#[test]
fn where_transactions_are_not_allowed_nothing_is_written() {
    let mut it = Fixture::new();
    for missing in ["multi", "watch", "exec", "discard", "unwatch"] {
        let user = format!("no-{missing}");
        let rules = ["on", ">pass", "~*", "&*", "+@all", &format!("-{missing}")];
        let _: () = cmd("ACL").arg("SETUSER").arg(&user).arg(&rules).query(&mut it.redis).unwrap();
        let client =
            Client::connect(&format!("redis://{user}:pass@127.0.0.1:{}/", it.server.port())).unwrap();
        let outcome = client.optimistic(&[KEY]).run(add_one);
        if missing == "unwatch" {
            // Only a caller that gives up needs it, and can do without.
            assert_eq!(outcome.unwrap().value, 1);
            continue;
        }
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{missing}: {error}");
        assert!(format!("{error:#}").contains(missing), "{error:#}");
        assert_eq!(it.get(KEY), None, "{missing}");
    }
}

/// A right, or a proxy's consent, that ends while the connection is in use.
#[test]
fn an_update_whose_transaction_is_refused_says_that_it_was_written_without_protection() {
    let mut it = Fixture::new();
    let rights = |redis: &mut Connection, rules: &[&str]| {
        cmd("ACL").arg("SETUSER").arg("default").arg(rules).exec(redis).unwrap();
    };
    it.client.optimistic(&[KEY]).run(add_one).unwrap();
    let connections = it.proxy.connections();
    for missing in [&["-multi"][..], &["-multi", "-exec"]] {
        let mut it_ran = 0;
        let error = it.client.optimistic(&[KEY]).run(|_, write| {
            it_ran += 1;
            rights(&mut it.redis, missing);
            let _: () = it.redis.set(KEY, "another's").unwrap();
            write.set(KEY, "mine").incr("sold", 1);
            Ok(Outcome::Commit(()))
        });
        rights(&mut it.redis, &["+@all"]);
        let error = error.unwrap_err();
        assert_eq!((error.kind(), it_ran), (ErrorKind::OutcomeUnknown, 1), "{error:#}");
        assert!(format!("{error:#}").contains("one by one"), "{error:#}");
        it.set(KEY, "1");
        it.client.optimistic(&[KEY]).run(add_one).unwrap();
    }
    assert_eq!((it.get("sold").as_deref(), it.proxy.connections()), (Some("2"), connections + 2));
    // What was not executed either is no loss of protection.
    let error = it.client.optimistic(&[KEY]).run(|_, write| {
        rights(&mut it.redis, &["-multi", "-set"]);
        write.set(KEY, "mine");
        Ok(Outcome::Commit(()))
    });
    rights(&mut it.redis, &["+@all"]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(it.get(KEY).as_deref(), Some("2"));
}

#[test]
fn a_lock_within_an_update_fails_at_once_where_no_connection_is_left() {
    let it = Fixture::new();
    let lock = it.client.reentrant_lock("within");
    let outside = it.client.optimistic(&[KEY]).run(|_, _| {
        let began = Instant::now();
        let error = lock.lock().map(drop).unwrap_err();
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(format!("{error:#}").contains("max_connections"), "{error:#}");
        Ok(Outcome::Abort(()))
    });
    outside.unwrap();
    lock.lock().unwrap().unlock().unwrap();
}

/// In words that fit a command: no script is anywhere near.
#[test]
fn a_read_that_redis_rejects_is_told() {
    let it = Fixture::new();
    let bad = [
        (cmd("GET"), ErrorKind::Protocol, "wrong number of arguments"),
        (cmd("NO-SUCH"), ErrorKind::Unavailable, "unknown command"),
    ];
    for (read, kind, why) in bad {
        let outcome = it.client.optimistic(&[KEY]).run(|it, _| it.query::<()>(&read).map(Outcome::Commit));
        let error = outcome.unwrap_err();
        let text = format!("{error:#}");
        assert!(error.kind() == kind && !error.is_retryable(), "{error:?}");
        assert!(text.contains("Redis rejected the request") && text.contains(why), "{text}");
    }
}

#[test]
fn a_closed_client_says_so() {
    let it = Fixture::new();
    let optimistic = it.client.optimistic(&[KEY]);
    // Also in the midst of an update.
    let error = optimistic.run(|_, _| {
        it.client.close().unwrap();
        Ok(Outcome::Commit(()))
    });
    assert!(error.is_ok_and(|update| update.committed), "it had what it needs");
    assert_eq!(optimistic.run(add_one).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(it.client.optimistic(&[KEY]).run_with(SOON, add_one).unwrap_err().kind(), ErrorKind::Closed);
}
