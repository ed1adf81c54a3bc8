//! The semaphore's rule and the adoption of holds, straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

use redis::{Commands, Connection, RedisResult, cmd};
use redis_concurrent::kinds::{Kind, Permits, Reentrant, Simple};
use redis_concurrent_testkit::{RedisServer, eventually};

use crate::rig::{Ask, PREFIX, RECORD, Rig, USUAL, int, next_message, server_that_fills, subscribe};
use crate::support::LONG;

/// One lock on a server of its own, which counts what it runs, and is full at times.
type Fixture = crate::rig::Fixture<RedisServer, Permits>;

impl Fixture {
    fn of<K: Kind>() -> Fixture {
        let props = server_that_fills();
        let rig = Rig::of(&props, K::NAME, K::RULE, "it");
        Fixture::new(rig, props)
    }

    /// With so many permits.
    fn with(n: i64) -> Fixture {
        let mut rig = Fixture::of::<Permits>();
        assert_eq!(rig.update("setter:1", &["set", &n.to_string()]), ["1"]);
        rig
    }

    fn acquire(&mut self, how: &str, owner: &str, n: &str) -> RedisResult<Vec<String>> {
        self.rig.acquire(how, owner, Ask { args: n, ..USUAL })
    }

    fn try_(&mut self, owner: &str, n: &str) -> Vec<String> {
        self.acquire("try", owner, n).unwrap()
    }

    fn wait(&mut self, owner: &str, n: &str) -> Vec<String> {
        self.acquire("wait", owner, n).unwrap()
    }

    /// It is in, with so many permits.
    #[track_caller]
    fn takes(&mut self, owner: &str, n: i64) -> String {
        let answer = self.try_(owner, &n.to_string());
        assert_eq!((&*answer[0], &*answer[3]), ("1", &*n.to_string()), "{answer:?}");
        answer[1].clone()
    }

    fn renew(&mut self, owner: &str, lease: &str) -> Vec<String> {
        self.rig.renew(owner, int(lease)).unwrap()
    }

    fn update(&mut self, request: &str, what: &[&str]) -> Vec<String> {
        self.rig.update(request, what).unwrap()
    }

    fn adopt(&mut self, owner: &str, from: &str) -> Vec<String> {
        self.rig.adopt(owner, from).unwrap()
    }

    /// {last number, holders, queue positions, state}
    fn inspect(&mut self) -> Vec<Vec<String>> {
        self.rig.inspect().unwrap()
    }

    /// All permits and those that are out, as the rule tells them.
    fn counts(&mut self) -> (String, String) {
        let state = self.inspect().swap_remove(3);
        (state[0].clone(), state[1].clone())
    }

    fn field(&mut self, name: &str) -> Option<String> {
        self.rig.con.hget(&self.rig.keys[0], name).unwrap()
    }

    /// A subscription to the inbox of the client `who`, whose ids are as short as that here.
    fn inbox(&self, who: &str) -> Connection {
        subscribe(&self.props, who)
    }
}

// ---- counting ------------------------------------------------------------------------------

#[test]
fn what_is_out_is_counted_and_asking_again_takes_nothing_more() {
    let mut rig = Fixture::with(5);
    let number = rig.takes("a:1", 2);
    assert_eq!(rig.takes("a:1", 2), number, "the same hold");
    rig.takes("b:1", 3);
    assert_eq!(rig.counts(), ("5".into(), "5".into()));
    assert_eq!(rig.try_("c:1", "1")[0], "0");
    assert_eq!(rig.leave("a:1"), ["1"]);
    assert_eq!(rig.leave("a:1"), ["0"]);
    assert_eq!(rig.counts(), ("5".into(), "3".into()));
    assert_eq!(rig.leave("b:1"), ["1"]);
    assert_eq!(rig.fields(), ["kind", "permits", "used"]);
    assert_eq!(rig.field("used").as_deref(), Some("0"));
}

#[test]
fn all_that_is_there_is_taken_once() {
    let mut rig = Fixture::with(5);
    rig.takes("a:1", 2);
    assert_eq!(rig.try_("b:1", "all")[3], "3");
    // Its answer was lost, and some have come back meanwhile.
    rig.leave("a:1");
    assert_eq!(rig.try_("b:1", "all")[3], "3");
    assert_eq!(rig.counts().1, "3");
    rig.takes("c:1", 2);
    assert_eq!(rig.try_("d:1", "all")[0], "0");
}

#[test]
fn with_room_and_nobody_waiting_it_takes_no_position() {
    let mut rig = Fixture::with(100);
    for i in 0..50 {
        rig.takes(&format!("h:{i}"), 1);
    }
    for how in ["try", "wait"] {
        let _: () = cmd("CONFIG").arg("RESETSTAT").query(&mut rig.con).unwrap();
        assert_eq!(rig.acquire(how, "a:1", "1").unwrap()[0], "1");
        assert_eq!((rig.calls("zadd"), rig.calls("hscan")), (1, 0), "{how}: its end, and nothing else");
        assert!(!rig.exists(1) && !rig.exists(2), "{how}");
        rig.leave("a:1");
    }
}

#[test]
fn a_lapsed_holder_is_found_without_a_walk_over_the_others() {
    let mut rig = Fixture::with(5);
    rig.takes("a:1", 2);
    rig.takes("b:1", 2);
    for i in 0..20 {
        assert_eq!(rig.try_(&format!("c:{i}"), "2")[0], "0");
    }
    rig.set_lease("a:1", -1);
    rig.takes("d:1", 3);
    assert_eq!((rig.calls("hgetall"), rig.calls("hscan"), rig.calls("hkeys")), (0, 0, 0));
    assert_eq!((rig.field("a:1"), rig.field("used").as_deref()), (None, Some("5")));
    assert_eq!(rig.renew("a:1", "30000"), ["-1"], "a renewal brings nothing back");
    assert_eq!(rig.leave("a:1"), ["0"]);
    // Their ends go with them.
    let ends: Vec<String> = rig.rig.con.zrange(&rig.rig.keys[5], 0, -1).unwrap();
    assert_eq!(ends, ["b:1", "d:1"]);
    rig.leave("b:1");
    rig.leave("d:1");
    assert!(!rig.exists(5));
}

#[test]
fn a_waiter_is_told_when_the_first_holder_lapses() {
    // Once more where the machine stood still, and it has lapsed meanwhile.
    let (mut rig, answer, renewed) = eventually(LONG, || {
        let mut rig = Fixture::with(4);
        rig.takes("a:1", 2);
        rig.takes("b:1", 2);
        let began = rig.now();
        // Sooner than the next heartbeat, and not before the next request.
        rig.set_lease("a:1", 900);
        let answer = rig.wait("c:1", "3");
        let renewed = rig.renew("a:1", "30000");
        let in_time = rig.now() - began < 900_000;
        in_time.then_some((rig, answer, renewed))
    });
    let ms: i64 = answer[2].parse().unwrap();
    assert!((1..=900).contains(&ms), "{ms}");
    // One that was renewed since may be looked at too early, and is not let go for that.
    assert_eq!(renewed, ["30000"]);
    rig.set_lease("b:1", -1);
    assert_eq!(rig.wait("c:1", "3")[0], "0");
    assert_eq!(rig.counts().1, "2");
    rig.set_lease("a:1", -1);
    assert_eq!(rig.wait("c:1", "3")[..1], ["1"]);
}

#[test]
fn a_renewal_sets_the_lease_and_never_creates() {
    let mut rig = Fixture::with(1);
    assert_eq!(rig.renew("a:1", "5000"), ["-1"]);
    rig.takes("a:1", 1);
    for lease in ["60000", "5000"] {
        assert_eq!(rig.renew("a:1", lease), [lease]);
        let holders = rig.inspect().swap_remove(1);
        let (left, wanted): (i64, i64) = (holders[1].parse().unwrap(), lease.parse().unwrap());
        assert_eq!((&*holders[0], &*holders[2]), ("a:1", RECORD));
        assert!(left <= wanted && left > wanted - 4000, "{left} of {wanted}");
    }
    rig.set_lease("a:1", 0);
    assert_eq!(rig.renew("a:1", "5000"), ["-1"]);
}

#[test]
fn the_key_has_no_end_but_one_that_was_set() {
    let mut rig = Fixture::with(3);
    rig.takes("a:1", 1);
    rig.renew("a:1", "1000");
    assert_eq!(rig.pttl(0), -1);
    assert_eq!(rig.update("r:1", &["expire", "60000"]), ["1"]);
    rig.takes("b:1", 1);
    rig.leave("a:1");
    let left = rig.pttl(0);
    assert!(left > 50_000 && left <= 60_000, "{left}");
    assert_eq!(rig.update("r:2", &["delete", "0"]), ["1"]);
    assert_eq!(rig.update("r:3", &["delete", "0"]), ["0"]);
    assert_eq!(rig.update("r:4", &["expire", "60000"]), ["0"]);
    assert!(!rig.exists(0));
}

// ---- changes -------------------------------------------------------------------------------

#[test]
fn a_change_that_is_sent_twice_is_made_once() {
    let mut rig = Fixture::of::<Permits>();
    for _ in 0..3 {
        assert_eq!(rig.update("r:1", &["first", "4"]), ["1"], "it was the first");
        assert_eq!(rig.update("r:2", &["first", "9"]), ["0"]);
        assert_eq!(rig.update("r:3", &["add", "2"]), ["1"]);
        assert_eq!(rig.update("r:4", &["add", "-1"]), ["1"]);
    }
    assert_eq!(rig.counts(), ("5".into(), "0".into()));
    assert_eq!(rig.update("r:5", &["add", "2147483643"]), ["-1"]);
    assert_eq!(rig.update("r:6", &["add", "2147483642"]), ["1"]);
    assert_eq!(rig.counts().0, "2147483647");
    let ttl = rig.pttl(4);
    assert!(ttl > 50_000 && ttl <= 60_000, "{ttl}");
}

#[test]
fn what_is_given_back_in_part_is_counted_once_and_never_taken_again() {
    let mut rig = Fixture::of::<Permits>();
    rig.update("r:1", &["set", "5"]);
    assert_eq!(rig.try_("a:1", "5")[0], "1");
    for _ in 0..3 {
        assert_eq!(rig.update("r:2", &["keep", "3", "a:1"]), ["1"]);
        assert_eq!(rig.counts(), ("5".into(), "3".into()));
    }
    assert_eq!(rig.update("r:3", &["keep", "1", "a:1"]), ["1"]);
    // A late copy of an older one, and a number that it does not have.
    for n in ["3", "5"] {
        assert_eq!(rig.update(&format!("r:4{n}"), &["keep", n, "a:1"]), ["1"]);
        assert_eq!(rig.counts(), ("5".into(), "1".into()));
    }
    for id in ["r:5", "r:5"] {
        assert_eq!(rig.update(id, &["keep", "1", "b:1"]), ["0"], "it has none");
    }
    assert_eq!(rig.counts(), ("5".into(), "1".into()));
}

#[test]
fn a_change_lets_in_waiters_that_may_and_refuses_those_that_never_will() {
    let mut rig = Fixture::with(3);
    rig.takes("h:1", 3);
    let (mut a, mut b) = (rig.inbox("a"), rig.inbox("b"));
    assert_eq!(rig.wait("a:1", "3")[0], "0");
    assert_eq!(rig.wait("b:1", "1")[0], "0");
    // The head waits in vain now; the one behind it does not.
    rig.update("r:1", &["add", "-1"]);
    assert!(next_message(&mut a).starts_with("a:1 no:it-has-2-permits-in-all 0 "));
    assert_eq!(rig.inspect()[2].len(), 2, "one waits");
    rig.update("r:2", &["set", "4"]);
    let message = next_message(&mut b);
    assert!(message.starts_with("b:1 in ") && message.ends_with(" 3000 1"), "{message}");
    assert_eq!(rig.counts(), ("4".into(), "4".into()));
    assert_eq!(rig.wait("a:1", "5"), ["-1", "it-has-4-permits-in-all"]);
    assert_eq!(rig.wait("a:2", "4")[0], "0");
    rig.update("r:3", &["delete", "0"]);
    assert!(next_message(&mut a).starts_with("a:2 no:it-has-no-permits:-set_permits-comes-first "));
    assert_eq!(rig.try_("a:3", "1"), ["-1", "it-has-no-permits:-set_permits-comes-first"]);
}

#[test]
fn a_foreign_key_is_refused_and_never_written() {
    let mut rig = Fixture::of::<Permits>();
    for fill in [vec!["SET", "x"], vec!["HSET", "kind", "reentrant lock", "owner", "a:1"], vec!["RPUSH", "x"]]
    {
        let key = rig.keys[0].clone();
        let _: () = cmd("DEL").arg(&key).query(&mut rig.con).unwrap();
        let _: () = cmd(fill[0]).arg(&key).arg(&fill[1..]).query(&mut rig.con).unwrap();
        let before: Vec<u8> = cmd("DUMP").arg(&key).query(&mut rig.con).unwrap();
        let sources = [
            (rig.scripts.acquire.clone(), vec!["a:1", "30000", PREFIX, "3000", "wait", "1", RECORD]),
            (rig.scripts.update.clone().unwrap(), vec!["r:1", "0", PREFIX, "3000", "set", "1"]),
            (rig.scripts.update.clone().unwrap(), vec!["r:2", "0", PREFIX, "3000", "delete", "0"]),
            (rig.scripts.adopt.clone().unwrap(), vec!["b:1", "30000", PREFIX, "3000", "a:1", "", RECORD]),
        ];
        for (source, args) in sources {
            let error = rig.eval(&source, &args).unwrap_err().to_string();
            assert!(error.contains("WRONGTYPE"), "{error}");
        }
        let after: Vec<u8> = cmd("DUMP").arg(&key).query(&mut rig.con).unwrap();
        assert_eq!(after, before);
    }
}

#[test]
fn a_full_redis_takes_what_is_there_and_nobody_new() {
    let mut rig = Fixture::with(3);
    rig.takes("a:1", 1);
    rig.takes("b:1", 1);
    rig.takes("c:1", 1);
    let _inbox = rig.inbox("d");
    assert_eq!(rig.wait("d:1", "2")[0], "0");
    rig.full(true);
    assert_eq!(rig.renew("a:1", "30000"), ["30000"]);
    assert_eq!(rig.acquire("keep", "d:1", "2").unwrap()[0], "0");
    assert!(rig.acquire("wait", "e:1", "1").is_err());
    // One lapses, one leaves: their permits go on to the waiters.
    rig.full(false);
    rig.set_lease("b:1", -1);
    rig.full(true);
    assert_eq!(rig.acquire("keep", "d:1", "2").unwrap()[0], "0");
    assert_eq!(rig.leave("a:1"), ["1"]);
    assert_eq!(rig.counts(), ("3".into(), "3".into()));
    assert!(rig.fields().contains(&"d:1".to_owned()));
    // Also on paper.
    assert_eq!(rig.adopt("f:1", "d:1")[0], "1");
    assert_eq!(rig.leave("f:1"), ["1"]);
    rig.full(false);
}

// ---- adopting ------------------------------------------------------------------------------

/// Has `a:1` hold it. Returns its number.
fn held<K: Kind>(rig: &mut Fixture) -> String {
    if K::NAME == Permits::NAME {
        rig.update("setter:1", &["set", "2"]);
    }
    let answer = rig.try_("a:1", "2");
    answer[1].clone()
}

fn adopting_keeps_the_number_and_is_done_once<K: Kind>(value: Option<&str>) {
    let mut rig = Fixture::of::<K>();
    let number = held::<K>(&mut rig);
    let answer = rig.adopt("b:1", "a:1");
    assert_eq!(answer[..3], ["1", &*number, "20000"]);
    assert_eq!(answer.get(3).map(|it| &**it), value);
    // Sent twice, it is told the same.
    let again = rig.adopt("b:1", "a:1");
    let left: i64 = again[2].parse().unwrap();
    assert_eq!((&again[..2], again.get(3)), (&answer[..2], answer.get(3)));
    assert!(left > 10_000 && left <= 20_000, "{left}");
    // The old one is out for good, whatever of it comes late.
    assert_eq!(rig.adopt("c:1", "a:1"), ["-1", "gone"]);
    assert_eq!(rig.wait("a:1", "2"), ["-1", "over"]);
    assert_eq!(rig.renew("a:1", "30000"), ["-2"]);
    assert_eq!(rig.leave("a:1"), ["0"]);
    let holders = rig.inspect().swap_remove(1);
    assert_eq!((holders.len(), &*holders[0]), (3, "b:1"));
    assert!(K::NAME == Simple::NAME || holders[2] == "0 1 there other", "{holders:?}");
    assert_eq!(rig.leave("b:1"), ["1"]);
    assert_eq!(rig.adopt("d:1", "b:1"), ["-1", "gone"], "it creates nothing");
    assert!(rig.inspect()[1].is_empty());
}

#[test]
fn adopting_keeps_the_number_and_is_done_once_of_a_simple_lock() {
    adopting_keeps_the_number_and_is_done_once::<Simple>(None);
}

#[test]
fn adopting_keeps_the_number_and_is_done_once_of_a_reentrant_lock() {
    adopting_keeps_the_number_and_is_done_once::<Reentrant>(None);
}

#[test]
fn adopting_keeps_the_number_and_is_done_once_of_a_semaphore() {
    adopting_keeps_the_number_and_is_done_once::<Permits>(Some("2"));
}

#[test]
fn a_waiter_with_a_tombstone_adopts_nothing() {
    let mut rig = Fixture::of::<Reentrant>();
    held::<Reentrant>(&mut rig);
    rig.leave_unsettled("b:1").unwrap();
    assert_eq!(rig.adopt("b:1", "a:1"), ["-1", "over"]);
    assert_eq!(rig.inspect()[1][0], "a:1");
}

#[test]
fn what_lapsed_is_not_adopted() {
    let mut rig = Fixture::of::<Permits>();
    held::<Permits>(&mut rig);
    rig.set_lease("a:1", 0);
    assert_eq!(rig.adopt("b:1", "a:1"), ["-1", "gone"]);
    assert_eq!(rig.counts(), ("2".into(), "0".into()));
}

#[test]
fn a_waiter_that_tries_from_its_position_takes_its_permits_once() {
    let mut rig = Fixture::with(2);
    rig.takes("a:1", 2);
    let _inbox = subscribe(&rig.props, "b");
    assert_eq!(rig.wait("b:1", "1")[0], "0");
    rig.set_lease("a:1", -1);
    assert_eq!(rig.try_("b:1", "1")[0], "0", "it is told");
    assert_eq!(rig.counts(), ("2".into(), "1".into()));
}
