//! Scripts of the user's own behind the check of a token.

use redis::Commands;
use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{Proxy, RedisServer};

use crate::fenced::NONE;
use crate::support::*;

#[test]
fn a_script_runs_with_its_own_keys_and_arguments_and_answers_as_by_itself() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let it = client.fenced("it");
    let all = it.script("return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[2]}");
    let seen: Vec<String> = all.run(7, &["a", "b"], (1, "x")).unwrap();
    assert_eq!(seen, ["2", "a", "b", "2", "1", "x"]);
    let nothing: (u8, u8) = it.script("return {#KEYS, #ARGV}").run(7, &[], NONE).unwrap();
    assert_eq!(nothing, (0, 0));
    it.script("return").run::<()>(7, &[], NONE).unwrap();
    it.script("-- only a word").run::<()>(7, &[], NONE).unwrap();
    assert_eq!(it.script("return false").run::<Option<u8>>(7, &[], NONE).unwrap(), None);
    assert_eq!(it.script("return {ok = 'FINE'}").run::<String>(7, &[], NONE).unwrap(), "FINE");
    assert!(
        it.script("return key == nil and token == nil and state == nil and run == nil")
            .run::<bool>(7, &[], NONE)
            .is_err()
    );
    assert_eq!(it.get_with_token::<String>().unwrap(), (Some(7), None));
}

#[test]
fn a_script_with_a_lower_token_does_not_run() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let it = client.fenced("it");
    let count = it.script("return redis.call('INCR', KEYS[1])");
    let high = (1 << 53) + 1;
    assert_eq!(count.run::<u64>(high, &["n"], NONE).unwrap(), 1);
    assert_eq!(count.run::<u64>(high, &["n"], NONE).unwrap(), 2);
    let error = count.run::<u64>(high - 1, &["n"], NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&format!("{} is lower than {high}", high - 1)), "{error}");
    // A script's token counts for writes too, and theirs for it.
    assert_eq!(it.set(high - 1, "x").unwrap_err().kind(), ErrorKind::Conflict);
    it.set(high + 1, "x").unwrap();
    assert_eq!(count.run::<u64>(high, &["n"], NONE).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(server.connection().unwrap().get::<_, u64>("n").unwrap(), 2);
}

#[test]
fn a_script_that_fails_says_why_and_in_which_of_its_own_lines() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let it = client.fenced("it");
    let cases = [
        ("redis.call('SET', KEYS[1], 'x')\n\nerror('on purpose')", ErrorKind::Protocol, ":3: on purpose"),
        (
            "redis.call('SET', KEYS[1], 'x')\nredis.call('RPUSH', KEYS[1], 'y')",
            ErrorKind::WrongType,
            "WRONGTYPE",
        ),
        (
            "redis.call('SET', KEYS[1], 'x') return redis.error_reply('MINE alone')",
            ErrorKind::Protocol,
            "MINE",
        ),
        ("this is no Lua", ErrorKind::Protocol, "user_script:1"),
    ];
    let mut redis = server.connection().unwrap();
    for (i, (source, kind, why)) in cases.into_iter().enumerate() {
        let error = it.script(source).run::<()>(i as u64, &["k"], NONE).unwrap_err();
        assert_eq!((error.kind(), error.name()), (kind, "it"), "{source}: {error}");
        assert!(format!("{error:#}").contains(why), "{source}: {error:#}");
        let written = source.contains("SET");
        assert_eq!(redis.del::<_, bool>("k").unwrap(), written, "what it wrote stands: {source}");
    }
    // Its token was seen, except by what was no script.
    assert_eq!(it.get_with_token::<String>().unwrap().0, Some(2));
    let error = it.script("return 'text'").run::<u32>(3, &[], NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert!(error.to_string().contains("has run"), "{error}");
}

#[test]
fn a_script_whose_answer_was_lost_is_unknown_and_not_sent_again() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let it = connected(|| builder(&proxy.url())).fenced("it");
    let count = it.script("return redis.call('INCR', KEYS[1])");
    assert_eq!(count.run::<u64>(1, &["n"], NONE).unwrap(), 1);
    // And not what a new connection begins with.
    proxy.only_matching(b"EVALSHA");
    proxy.swallow_next_reply_and_reset();
    assert_eq!(count.run::<u64>(1, &["n"], NONE).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    proxy.reset_before_next_request();
    assert_eq!(count.run::<u64>(1, &["n"], NONE).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!((proxy.struck(), count.run::<u64>(1, &["n"], NONE).unwrap()), (2, 3));
}

#[test]
fn a_server_that_forgot_the_scripts_is_sent_them_again() {
    let server = RedisServer::start().unwrap();
    let it = connect(&server).fenced("it");
    let count = it.script("return redis.call('INCR', KEYS[1])");
    for n in 1..4 {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection().unwrap()).unwrap();
        it.set(1, n).unwrap();
        assert_eq!((it.get().unwrap(), count.run(1, &["n"], NONE).unwrap()), (Some(n), n));
    }
}
