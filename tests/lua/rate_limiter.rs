//! The scripts of a rate limiter straight against a server, below the client.

mod played;
mod reference;

use std::sync::{LazyLock, OnceLock};

use redis::{Commands, Connection, RedisResult, cmd};
use redis_concurrent_testkit::rate_limiter_script;
use redis_concurrent_testkit::{RedisServer, expires_at};

static ACQUIRE: LazyLock<String> =
    LazyLock::new(|| rate_limiter_script(include_str!("../../lua/rate_limiter/acquire.lua")));
static DELETE: LazyLock<String> =
    LazyLock::new(|| rate_limiter_script(include_str!("../../lua/rate_limiter/delete.lua")));

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3600 * SECOND;

fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| RedisServer::start().unwrap())
}

/// One limiter, by its key.
struct Limiter {
    con: Connection,
    key: String,
}

/// `{allowed, remaining, retry after us, reset after us}`
type Answer = [i64; 4];

/// A rate: limit, window in us, and of a smooth one the burst.
type Rate<'a> = (i64, i64, Option<i64>);

impl Limiter {
    fn at(server: &RedisServer, name: &str) -> Limiter {
        Limiter { con: server.connection().unwrap(), key: format!("rc:{{{name}}}") }
    }

    fn new(name: &str) -> Limiter {
        Limiter::at(server(), name)
    }

    fn try_ask(&mut self, n: i64, (limit, window, burst): Rate) -> RedisResult<Answer> {
        let mut eval = cmd("EVAL");
        eval.arg(&*ACQUIRE).arg(1).arg(&self.key).arg(n).arg(limit).arg(window).arg(burst);
        eval.query(&mut self.con)
    }

    fn ask(&mut self, n: i64, rate: Rate) -> Answer {
        self.try_ask(n, rate).unwrap()
    }

    fn delete(&mut self) -> RedisResult<i64> {
        cmd("EVAL").arg(&*DELETE).arg(1).arg(&self.key).query(&mut self.con)
    }

    fn used(&mut self) -> f64 {
        self.con.hget(&self.key, "used").unwrap()
    }

    fn pttl(&mut self) -> i64 {
        self.con.pttl(&self.key).unwrap()
    }

    fn dump(&mut self) -> Option<Vec<u8>> {
        cmd("DUMP").arg(&self.key).query(&mut self.con).unwrap()
    }

    /// Lets the state look as if it were so many us older; younger, if negative.
    fn age(&mut self, us: i64) {
        let _: i64 = cmd("HINCRBY").arg(&self.key).arg("at").arg(-us).query(&mut self.con).unwrap();
    }
}

#[test]
fn a_fixed_window_lets_in_its_limit_from_the_first_one_on() {
    let (mut it, rate) = (Limiter::new("fixed"), (3, HOUR, None));
    let mut last = HOUR;
    for left in [2, 1, 0] {
        let [allowed, remaining, retry, reset] = it.ask(1, rate);
        assert_eq!([allowed, remaining, retry], [1, left, 0]);
        // The end was set by the first.
        assert!((HOUR - 60 * SECOND..=last).contains(&reset), "{reset}");
        assert!((1..=reset / 1000 + 2).contains(&it.pttl()), "{}", it.pttl());
        last = reset;
    }
    let [allowed, remaining, retry, reset] = it.ask(1, rate);
    assert_eq!([allowed, remaining], [0, 0]);
    assert!(retry == reset && retry <= last, "{retry} {reset}");
    it.age(HOUR - 60 * SECOND);
    assert_eq!(it.ask(1, rate)[0], 0);
    it.age(60 * SECOND);
    let [allowed, remaining, _, reset] = it.ask(2, rate);
    assert_eq!([allowed, remaining, reset], [1, 1, HOUR]);
}

#[test]
fn a_smooth_rate_lets_in_its_burst_and_then_one_by_one() {
    let (mut it, rate) = (Limiter::new("smooth"), (60, HOUR, Some(3)));
    for left in [2, 1, 0] {
        let [allowed, remaining, retry, reset] = it.ask(1, rate);
        assert_eq!([allowed, remaining, retry], [1, left, 0]);
        let whole = (3 - left) * 60 * SECOND;
        assert!((whole - 30 * SECOND..=whole).contains(&reset), "{reset}");
        assert!((1..=reset / 1000 + 2).contains(&it.pttl()));
    }
    let [allowed, _, retry, _] = it.ask(1, rate);
    assert!(allowed == 0 && (30 * SECOND..=60 * SECOND).contains(&retry), "{allowed} {retry}");
    let two = it.ask(2, rate)[2];
    assert!((59 * SECOND..=60 * SECOND).contains(&(two - retry)), "{two} {retry}");
    // A caller that waits as long as it was told gets in, and no other.
    it.age(retry);
    assert_eq!(it.ask(1, rate)[..2], [1, 0]);
    assert_eq!(it.ask(1, rate)[0], 0);
    it.age(HOUR);
    assert_eq!(it.ask(3, rate)[..2], [1, 0]);
}

#[test]
fn all_or_nothing_and_what_is_refused_changes_nothing() {
    for (name, burst) in [("whole", None), ("whole smooth", Some(5))] {
        let (mut it, rate) = (Limiter::new(name), (5, HOUR, burst));
        assert_eq!(it.ask(0, rate), [1, 5, 0, 0]);
        assert!(it.dump().is_none());
        assert_eq!(it.ask(4, rate)[..3], [1, 1, 0]);
        let (before, ends) = (it.dump(), it.pttl());
        assert_eq!(it.ask(2, rate)[..2], [0, 1]);
        assert_eq!(it.ask(0, rate)[..3], [1, 1, 0]);
        assert!(it.dump() == before && it.pttl() <= ends);
        assert_eq!(it.ask(1, rate)[..2], [1, 0]);
    }
}

#[test]
fn another_rate_finds_the_same_count() {
    let mut it = Limiter::new("changed");
    assert_eq!(it.ask(4, (10, HOUR, None))[1], 6);
    assert_eq!(it.ask(0, (20, HOUR, None))[1], 16);
    assert_eq!(it.ask(0, (3, HOUR, None))[..2], [0, 0]);
    assert_eq!(it.ask(1, (20, HOUR, None))[1], 15);
    // A longer window lasts longer from its beginning on, and a shorter one is over sooner.
    it.age(HOUR / 2);
    let [_, remaining, _, reset] = it.ask(1, (20, 2 * HOUR, None));
    assert!(remaining == 14 && reset > HOUR && it.pttl() > HOUR / 1000, "{remaining} {reset}");
    assert_eq!(it.ask(1, (20, HOUR / 2, None))[1], 19);
    // From one shape to the other.
    assert_eq!(it.ask(5, (20, HOUR, Some(20)))[1], 14);
    assert_eq!(it.ask(1, (20, HOUR, None))[..2], [1, 13]);
    it.age(HOUR / 2);
    let [_, remaining, _, reset] = it.ask(0, (10, HOUR, Some(10)));
    assert!(remaining == 8 && reset <= HOUR / 5, "of 7 in use, 5 have leaked out: {remaining} {reset}");
}

#[test]
fn a_clock_that_was_set_back_keeps_nobody_out_for_longer_than_a_window() {
    for (name, burst) in [("back", None), ("back smooth", Some(2))] {
        let (mut it, rate) = (Limiter::new(name), (2, HOUR, burst));
        it.ask(2, rate);
        it.age(-10 * HOUR);
        let [allowed, _, retry, reset] = it.ask(1, rate);
        assert!(allowed == 0 && retry <= HOUR && reset <= HOUR, "{name}: {retry} {reset}");
        assert_eq!(it.used(), 2.0);
        // From there on its time goes by.
        it.age(HOUR);
        assert_eq!(it.ask(1, rate)[..2], [1, 1], "{name}");
    }
}

#[test]
fn every_state_has_an_end_that_is_not_too_early() {
    let rates = [
        (1, 100_000, None),
        (7, SECOND, Some(1)),
        (1, 366 * 24 * HOUR, Some(i64::from(i32::MAX))),
        (i64::from(i32::MAX), 100_000, Some(1)),
        (i64::from(i32::MAX), 366 * 24 * HOUR, None),
        (i64::from(i32::MAX), 366 * 24 * HOUR, Some(i64::from(i32::MAX))),
    ];
    for (i, rate) in rates.into_iter().enumerate() {
        let most = rate.2.unwrap_or(rate.0);
        // A server that stands still within its script counts the end from later; so it is tried again.
        let mut tries = 0;
        let mut it = loop {
            let mut it = Limiter::new(&format!("end {i} {tries}"));
            tries += 1;
            let [allowed, remaining, _, reset] = it.ask(most, rate);
            assert_eq!([allowed, remaining], [1, 0], "{rate:?}");
            let ends = expires_at(&mut it.con, &it.key).unwrap();
            let at: Option<i64> = it.con.hget(&it.key, "at").unwrap();
            // The shortest ones may have ended since.
            let Some(at) = at else { break it };
            let ends = ends.expect("it has an end");
            let late = ends.as_micros() as i64 - at - reset;
            assert!(late >= 0, "{rate:?}: {ends:?} {at} {reset}");
            if late <= 2_000 {
                break it;
            }
            assert!(tries < 100, "{rate:?}: too late by {late} us");
        };
        let [allowed, _, retry, _] = it.ask(most, rate);
        assert!(allowed == 1 || retry > 0, "{rate:?}: {retry}");
    }
    // So much was used that by this rate it takes longer than numbers reach.
    let mut it = Limiter::new("end of all");
    let most = i64::from(i32::MAX);
    it.ask(most, (most, 366 * 24 * HOUR, Some(most)));
    let [allowed, _, retry, reset] = it.ask(1, (1, 366 * 24 * HOUR, Some(1)));
    assert_eq!([allowed, retry, reset], [0, 1 << 53, 1 << 53]);
    it.age(-HOUR);
    assert_eq!(it.ask(1, (1, 366 * 24 * HOUR, Some(1)))[0], 0);
    assert!(it.pttl() > 0);
}

#[test]
fn a_foreign_key_is_left_as_it_is() {
    let mut it = Limiter::new("strange");
    let key = it.key.clone();
    let foreign: [&[&str]; 6] = [
        &["SET", &key, "theirs"],
        &["HSET", &key, "used", "1"],
        &["HSET", &key, "kind", "semaphore"],
        &["RPUSH", &key, "theirs"],
        &["SADD", &key, "theirs"],
        &["ZADD", &key, "1", "theirs"],
    ];
    for value in foreign {
        let _: bool = it.con.del(&key).unwrap();
        let _: redis::Value = cmd(value[0]).arg(&value[1..]).query(&mut it.con).unwrap();
        let before = it.dump();
        let errors = [
            it.try_ask(1, (3, HOUR, None)).unwrap_err(),
            it.try_ask(0, (3, HOUR, Some(3))).unwrap_err(),
            it.delete().unwrap_err(),
        ];
        for error in errors.map(|e| e.to_string()) {
            assert!(error.contains("WRONGTYPE"), "{value:?}: {error}");
        }
        assert_eq!(it.dump(), before);
        assert_eq!(it.pttl(), -1);
    }
}

#[test]
fn it_is_deleted_once() {
    let (mut it, rate) = (Limiter::new("deleted"), (3, HOUR, None));
    assert_eq!(it.delete().unwrap(), 0);
    it.ask(3, rate);
    assert_eq!(it.delete().unwrap(), 1);
    assert_eq!(it.delete().unwrap(), 0);
    assert_eq!(it.ask(1, rate)[..2], [1, 2]);
}

/// The server's memory is full, or is not any more.
fn full(it: &mut Limiter, on: bool) {
    cmd("CONFIG").arg("SET").arg("maxmemory").arg(u8::from(on)).exec(&mut it.con).unwrap();
}

#[test]
fn a_full_redis_goes_on_counting_what_it_counts() {
    let server = RedisServer::builder().arg("maxmemory-policy", "noeviction").start().unwrap();
    let (mut known, mut new) = (Limiter::at(&server, "known"), Limiter::at(&server, "new"));
    for burst in [None, Some(5)] {
        let rate = (5, HOUR, burst);
        known.ask(1, rate);
        full(&mut new, true);
        assert_eq!(known.ask(2, rate)[..2], [1, 2]);
        assert_eq!(known.ask(3, rate)[..2], [0, 2]);
        let error = new.try_ask(1, rate).unwrap_err().to_string();
        assert!(error.contains("OOM") || error.contains("maxmemory"), "{error}");
        assert!(new.dump().is_none(), "nothing half-written");
        assert_eq!(new.ask(0, rate)[..2], [1, 5]);
        full(&mut new, false);
        assert_eq!(known.delete().unwrap(), 1);
    }
}
