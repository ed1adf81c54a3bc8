//! The scripts of a fenced resource straight against a server, below the client.

use redis::{Commands, Connection, RedisResult, Value, cmd};
use redis_concurrent_testkit::{RedisServer, fenced_script};

const KEY: &str = "rc:{it}:fenced";
const SET: &str = include_str!("../../lua/fenced/set.lua");

struct Fixture {
    server: RedisServer,
    redis: Connection,
}

impl Fixture {
    fn new() -> Fixture {
        let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap();
        let redis = server.connection().unwrap();
        Fixture { server, redis }
    }

    fn run(&mut self, source: &str, token: &str, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
        let mut eval = cmd("EVAL");
        eval.arg(fenced_script(source)).arg(1 + keys.len()).arg(KEY).arg(keys).arg(token).arg(args);
        eval.query(&mut self.redis)
    }

    fn set(&mut self, token: &str, value: &str) -> RedisResult<Vec<Value>> {
        self.run(SET, token, &[KEY], &[value]).map(|answer| redis::from_redis_value(answer).unwrap())
    }

    fn dump(&mut self) -> Vec<u8> {
        cmd("DUMP").arg(KEY).query(&mut self.redis).unwrap()
    }

    fn state(&mut self) -> Vec<(String, String)> {
        let mut state: Vec<(String, String)> = self.redis.hgetall(KEY).unwrap();
        state.sort();
        state
    }
}

fn reply(number: i64, rest: &str) -> Vec<Value> {
    vec![Value::Int(number), Value::BulkString(rest.into())]
}

/// What stands there after a write.
fn written(token: &str, value: &str) -> Vec<(String, String)> {
    [("kind", "fenced"), ("token", token), ("value", value)].map(|(k, v)| (k.into(), v.into())).into()
}

#[test]
fn texts_are_compared_and_not_numbers() {
    let mut it = Fixture::new();
    // As doubles all of these are the same.
    let (low, middle, high) = ("9007199254740992000", "9007199254740992001", "9007199254740992002");
    assert_eq!(low.parse::<f64>().unwrap(), high.parse::<f64>().unwrap());
    for (token, value) in [(low, "a"), (middle, "b"), (middle, "c"), (high, "d")] {
        assert_eq!(it.set(token, value).unwrap()[0], Value::Int(1));
        assert_eq!(it.state(), written(token, value));
    }
    for lower in [low, middle, "0000000000000000000", "0999999999999999999"] {
        assert_eq!(it.set(lower, "late").unwrap(), reply(0, high));
        assert_eq!(it.state(), written(high, "d"));
    }
}

#[test]
fn a_resource_has_no_end_and_a_script_s_own_keys_are_its_own() {
    let mut it = Fixture::new();
    let source = "redis.call('SET', KEYS[1], ARGV[1]) return #KEYS + #ARGV";
    let answer = it.run(source, "0000000000000000001", &["mine"], &["x"]).unwrap();
    assert_eq!(answer, Value::Array(vec![Value::Int(1), Value::Int(2)]));
    assert_eq!(it.redis.get::<_, String>("mine").unwrap(), "x");
    assert_eq!(it.redis.pttl::<_, i64>(KEY).unwrap(), -1);
    let state = [("kind", "fenced"), ("token", "0000000000000000001")].map(|(k, v)| (k.into(), v.into()));
    assert_eq!(it.state(), state);
}

#[test]
fn nothing_runs_and_nothing_is_written_over_a_foreign_key() {
    let mut it = Fixture::new();
    for value in [&["SET", KEY, "x"][..], &["HSET", KEY, "kind", "reentrant"], &["HSET", KEY, "value", "x"]] {
        let _: () = cmd(value[0]).arg(&value[1..]).query(&mut it.redis).unwrap();
        let before = it.dump();
        let error = it.run("redis.call('SET', 'ran', 1)", "0000000000000000001", &[], &[]).unwrap_err();
        assert!(error.to_string().contains("WRONG"), "{error}");
        assert_eq!(it.dump(), before);
        assert!(!it.redis.exists::<_, bool>("ran").unwrap());
        it.redis.del::<_, ()>(KEY).unwrap();
    }
}

#[test]
fn a_full_server_takes_nothing_of_it() {
    let mut it = Fixture::new();
    it.set("0000000000000000001", "a").unwrap();
    let full = |it: &mut Fixture, limit: &str| {
        let _: () = cmd("CONFIG").arg("SET").arg("maxmemory").arg(limit).query(&mut it.redis).unwrap();
    };
    full(&mut it, "1");
    let error = it.set("0000000000000000002", "b").unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    // A lower one hears that it is too low all the same.
    assert_eq!(it.set("0000000000000000000", "late").unwrap(), reply(0, "0000000000000000001"));
    full(&mut it, "0");
    assert_eq!(it.state(), written("0000000000000000001", "a"));
    assert!(it.server.pid().is_some());
}

#[test]
fn a_write_is_three_commands_and_an_equal_token_one_less() {
    let mut it = Fixture::new();
    it.set("0000000000000000001", "a").unwrap();
    for (token, writes) in [("0000000000000000002", 2), ("0000000000000000002", 1)] {
        let _: () = cmd("CONFIG").arg("RESETSTAT").query(&mut it.redis).unwrap();
        it.set(token, "b").unwrap();
        let calls = it.server.command_calls().unwrap();
        let count = |name: &str| calls.get(name).copied().unwrap_or(0);
        assert_eq!((count("hmget"), count("hset"), count("exists")), (1, writes, 0));
    }
}
