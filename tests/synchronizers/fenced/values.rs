//! The value and its highest token.

use redis::{Commands, cmd};
use redis_concurrent::{ErrorKind, Fenced};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::fenced::NONE;
use crate::support::*;

const TOP: u64 = i64::MAX as u64;

fn dump(redis: &mut redis::Connection, key: &str) -> Vec<u8> {
    cmd("DUMP").arg(key).query(redis).unwrap()
}

#[track_caller]
fn refused(it: &Fenced, token: u64, highest: u64) {
    let error = it.set(token, "late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(format!("{it:?}").contains(&format!("{:?}", error.name())), "{error}");
    assert!(error.to_string().contains(&format!("token {token} is lower than {highest},")), "{error}");
}

#[test]
fn a_write_with_a_lower_token_is_refused_and_an_equal_one_is_not() {
    let server = RedisServer::start().unwrap();
    let it = connect(&server).fenced("it");
    assert_eq!(it.get_with_token::<String>().unwrap(), (None, None));
    // Where doubles have gaps, where texts get longer, and at both ends.
    let tokens =
        [0, 9, 10, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 53) + 2, 10_u64.pow(18), TOP - 1, TOP];
    for (i, &token) in tokens.iter().enumerate() {
        it.set(token, token).unwrap();
        it.set(token, token).unwrap();
        for lower in &tokens[..i] {
            refused(&it, *lower, token);
        }
        assert_eq!(it.get_with_token().unwrap(), (Some(token), Some(token)));
    }
}

#[test]
fn the_tokens_of_a_lock_s_holds_are_taken_as_they_rise() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let it = a.fenced("same name");
    let mut last = 0;
    for i in 0..20 {
        let guard = if i % 2 == 0 { &a } else { &b }.reentrant_lock("same name").lock_owned().unwrap();
        it.set(guard.token(), i).unwrap();
        if i > 0 {
            refused(&it, last, guard.token());
        }
        last = guard.token();
        guard.unlock().unwrap();
    }
    assert_eq!(it.get::<u32>().unwrap(), Some(19));
}

#[test]
fn values_are_bytes_and_are_read_as_what_is_asked_for() {
    let server = RedisServer::start().unwrap();
    let it = connect(&server).fenced("it");
    for value in [&b""[..], b"\0\xff", b"nil", &[7; 100_000]] {
        it.set(1, value).unwrap();
        assert_eq!(it.get::<Vec<u8>>().unwrap().as_deref(), Some(value));
    }
    it.set(1, "many").unwrap();
    let error = it.get::<u32>().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, "it"), "{error}");
}

#[test]
fn it_stays_until_it_is_deleted_or_as_long_as_was_said() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let client = connect(&server);
    let it = client.fenced("it");
    assert!(!it.expire_after(LONG).unwrap() && !it.delete().unwrap());
    it.set(5, "a").unwrap();
    assert_eq!(redis.pttl::<_, i64>("rc:{it}:fenced").unwrap(), -1);
    assert!(it.expire_after(LONG).unwrap());
    it.set(6, "b").unwrap();
    let left: i64 = redis.pttl("rc:{it}:fenced").unwrap();
    assert!((1..=20_000).contains(&left), "{left}");
    assert!(it.delete().unwrap());
    assert_eq!(it.get_with_token::<String>().unwrap(), (None, None));
    it.set(1, "anew").unwrap();
    it.expire_after(ms(100)).unwrap();
    redis_concurrent_testkit::wait_until(SOON, "it has ended", || server.keys().unwrap().is_empty());
}

#[test]
fn what_cannot_work_is_told_and_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let it = client.fenced("it");
    for (error, why) in [
        (client.fenced("").set(1, "x").unwrap_err(), "a fenced resource's name must not be empty"),
        (client.fenced(&"x".repeat(1025)).get::<String>().unwrap_err(), "1025"),
        (client.fenced("").expire_after(LONG).unwrap_err(), "empty"),
        (client.fenced("").delete().unwrap_err(), "empty"),
        (client.fenced("").script("return 1").run::<()>(1, &[], NONE).unwrap_err(), "empty"),
        (it.set(TOP + 1, "x").unwrap_err(), "got 9223372036854775808"),
        (it.set(u64::MAX, "x").unwrap_err(), "got 18446744073709551615"),
        (it.script("return 1").run::<()>(u64::MAX, &[], NONE).unwrap_err(), "at most"),
        (it.script("#!lua\nreturn 1").run::<()>(1, &[], NONE).unwrap_err(), "#!"),
        (it.expire_after(ms(1)).unwrap_err(), "got 1ms"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(client.request_count(), 0);
}

#[test]
fn a_key_of_somebody_else_s_is_left_alone() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let it = connect(&server).fenced("it");
    let key = "rc:{it}:fenced";
    let foreign: [&[&str]; 4] = [
        &["SET", key, "x"],
        &["RPUSH", key, "x"],
        &["HSET", key, "token", "1"],
        &["HSET", key, "kind", "semaphore", "token", "1"],
    ];
    for value in foreign {
        let _: () = cmd(value[0]).arg(&value[1..]).query(&mut redis).unwrap();
        let before = dump(&mut redis, key);
        for outcome in [
            it.set(1, "x"),
            it.get::<String>().map(drop),
            it.script("error('it ran')").run(1, &[], NONE),
            it.expire_after(LONG).map(drop),
            it.delete().map(drop),
        ] {
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, "it"), "{value:?}: {error}");
        }
        assert_eq!(dump(&mut redis, key), before);
        redis.del::<_, ()>(key).unwrap();
    }
}

#[test]
fn a_set_whose_answer_was_lost_is_sent_again() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let it = connected(|| builder(&proxy.url())).fenced("it");
    it.set(1, "before").unwrap();
    // And not what a new connection begins with.
    proxy.only_matching(b"EVALSHA");
    proxy.swallow_next_reply_and_reset();
    it.set(2, "once").unwrap();
    assert_eq!(proxy.struck(), 1);
    proxy.reset_before_next_request();
    it.set(3, "or twice").unwrap();
    assert_eq!(proxy.struck(), 2);
    assert_eq!(it.get_with_token().unwrap(), (Some(3), Some("or twice".to_owned())));
}

#[test]
fn a_set_without_an_answer_is_unknown_and_a_get_is_not() {
    let server = RedisServer::start().unwrap();
    let it = connected(|| builder(&server.url()).command_timeout(ms(1000))).fenced("it");
    wait_until(LONG, "it is answered in time", || it.set(1, "a").is_ok());
    server.stop().unwrap();
    assert_eq!(it.set(2, "b").unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(it.get::<String>().unwrap_err().kind(), ErrorKind::Unavailable);
    server.cont().unwrap();
}

/// Else the next tokens that come, however low, would be taken again.
#[test]
fn a_late_copy_deletes_nothing_that_came_after_it() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let it = connected(|| builder(&proxy.url()).command_timeout(LONG)).fenced("it");
    it.set(1, "old").unwrap();
    proxy.hold_next_requests(1);
    std::thread::scope(|scope| {
        let deletes = scope.spawn(|| it.delete());
        wait_until(LONG, "it is held", || proxy.held() == 1);
        proxy.cut_all();
        if let Err(error) = deletes.join().unwrap() {
            // Its caller knows that it may come yet.
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            return;
        }
        it.set(9, "new").unwrap();
        proxy.release_held();
        wait_until(LONG, "the late copy was sent", || proxy.held() == 0);
        std::thread::sleep(ms(50));
        refused(&it, 8, 9);
    });
}
