//! Kinds of one's own: what an error in a rule says, priorities, and callers that each ask by themselves.

use std::thread;

use parking_lot::Mutex;
use redis_concurrent::kinds::{Exclusive, Kind, Queueing, Reentrancy, Sharing};
use redis_concurrent::{Client, ErrorKind, RedisLock, Wait, rule_file};
use redis_concurrent_testkit::{RedisServer, contract, wait_until};

use crate::bulkhead::Bulkhead;
use crate::support::*;

/// A kind with a rule made of the bulkhead's, of which something is wrong.
macro_rules! wrong {
    ($name:ident, $rule:expr) => {
        struct $name;

        impl Kind for $name {
            const NAME: &'static str = "wrong";
            const RULE: &'static str = $rule;
            const SHARING: Sharing = Sharing::Shared;
            const REENTRANCY: Reentrancy = Reentrancy::Independent;
        }
    };
}

// Its `args` are empty: `tonumber(w.args)` in line 14 is nothing.
wrong!(NoNumber, rule_file!("../../examples/own_kind.lua"));
wrong!(
    NoCommand,
    concat!(rule_file!("../../examples/own_kind.lua"), "function kind.reject()\n  call('NONSENSE')\nend")
);
wrong!(
    NoGlobal,
    concat!(rule_file!("../../examples/own_kind.lua"), "function kind.reject()\n  return settled\nend")
);
wrong!(
    NoLua,
    concat!(rule_file!("../../examples/own_kind.lua"), "function kind.reject()\n  return 1 1\nend")
);
wrong!(NoEnd, concat!(rule_file!("../../examples/own_kind.lua"), "function kind.reject()\n"));

#[test]
fn an_error_in_a_rule_is_invalid_input_and_names_its_function_file_and_line() {
    fn says<K: Kind>(client: &Client, kind: K, place: &str, why: &str) {
        let error = client.lock_with_kind("it", kind).try_lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
        let text = format!("{error:#}");
        assert!(text.contains(place) && text.contains(why), "{text}, and not {place} {why}");
        assert!(!text.contains("user_script") && !text.contains("f_"), "{text}");
    }
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lines = include_str!("../../examples/own_kind.lua").lines().count();
    let compared =
        include_str!("../../examples/own_kind.lua").lines().position(|l| l.contains("tonumber(w.args)"));
    let at = |function: &str, line: usize| format!("{function} (examples/own_kind.lua:{line}): ");
    says(&client, NoNumber, &at("kind.try_acquire", compared.unwrap() + 1), "attempt to compare");
    says(&client, NoCommand, &at("kind.reject", lines + 2), "Unknown");
    says(&client, NoGlobal, &at("kind.reject", lines + 2), "'settled'");
    says(&client, NoLua, &at("kind.reject", lines + 2), "near '1'");
    says(&client, NoEnd, &format!("examples/own_kind.lua:{}: ", lines + 1), "is not closed");
}

/// An exclusive lock whose requests say how urgent they are.
struct Urgent(u8);

impl Kind for Urgent {
    const NAME: &'static str = "simple lock";
    const RULE: &'static str = concat!(
        rule_file!("../../lua/simple.lua"),
        "function kind.class(w)\n  return tonumber(w.args)\nend\n"
    );
    const SHARING: Sharing = Sharing::Exclusive;
    const REENTRANCY: Reentrancy = Reentrancy::Forbidden;

    fn class(&self) -> Option<u8> {
        Some(self.0)
    }

    fn args(&self) -> String {
        self.0.to_string()
    }
}

impl Exclusive for Urgent {}

#[test]
fn priorities_hold_within_a_process_as_between_processes() {
    let server = RedisServer::start().unwrap();
    let (a, b, holder) = (connect(&server), connect(&server), connect(&server));
    let mut redis = server.connection().unwrap();
    // The classes of the queue's positions, in their order.
    let mut queue = || -> Vec<u64> {
        let mut zrange = redis::cmd("ZRANGE");
        let all: Vec<(String, u64)> =
            zrange.arg("rc:{it}:queue").arg(0).arg(-1).arg("WITHSCORES").query(&mut redis).unwrap();
        all.into_iter().map(|(_, score)| score >> 50).collect()
    };
    let guard = holder.lock_with_kind("it", Urgent(0)).lock_owned().unwrap();
    let came = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let mut waits = |who: &'static str, client: &Client, class: u8, threads: usize, classes: &[u64]| {
            let lock = client.lock_with_kind("it", Urgent(class));
            let seen = lock.clone();
            let came = &came;
            scope.spawn(move || {
                let held = lock.lock().unwrap();
                came.lock().push(format!("{who}{class}"));
                held.unlock().unwrap();
            });
            wait_until(LONG, "one more waits", || seen.local_queue_length() == threads);
            wait_until(LONG, "the positions are where they belong", || queue() == classes);
        };
        waits("a", &a, 5, 1, &[5]);
        waits("b", &b, 3, 1, &[3, 5]);
        waits("a", &a, 0, 2, &[0, 3]);
        waits("b", &b, 4, 2, &[0, 3]);
        waits("a", &a, 3, 3, &[0, 3]);
        waits("b", &b, 0, 3, &[0, 0]);
        guard.unlock().unwrap();
    });
    // b3 has its arrival from before its process's position was moved; a3 never had one.
    assert_eq!(came.into_inner(), ["a0", "b0", "b3", "a3", "b4", "a5"]);
}

#[test]
fn a_class_is_from_0_to_7() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    assert!(client.lock_with_kind("it", Urgent(7)).try_lock().unwrap().is_some());
    let error = client.lock_with_kind("it", Urgent(8)).try_lock().unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.to_string().contains("between 0 and 7, got 8"),
        "{error}"
    );
}

#[test]
fn a_moved_position_costs_a_leave_and_an_ask() {
    let server = RedisServer::start().unwrap();
    let (waits, holder) = (connect(&server), connect(&server));
    // From now on Redis knows the scripts.
    holder.lock_with_kind("other", Urgent(0)).lock().unwrap().unlock().unwrap();
    let guard = holder.lock_with_kind("it", Urgent(0)).lock_owned().unwrap();
    thread::scope(|scope| {
        let spawn = |class: u8, n: usize| {
            let lock = waits.lock_with_kind("it", Urgent(class));
            let seen = lock.clone();
            scope.spawn(move || drop(lock.lock().unwrap()));
            wait_until(LONG, "it waits", || seen.local_queue_length() == n);
        };
        spawn(5, 1);
        let mut redis = server.connection().unwrap();
        let mut class = || -> Option<u64> {
            let mut zrange = redis::cmd("ZRANGE");
            let all: Vec<(String, u64)> =
                zrange.arg("rc:{it}:queue").arg(0).arg(-1).arg("WITHSCORES").query(&mut redis).unwrap();
            all.first().map(|(_, score)| score >> 50)
        };
        wait_until(LONG, "it has a position", || class() == Some(5));
        let before = waits.request_count();
        spawn(1, 2);
        wait_until(LONG, "the position is moved", || class() == Some(1));
        assert_eq!(waits.request_count() - before, 2, "no heartbeat is due yet");
        spawn(1, 3);
        spawn(3, 4);
        assert_eq!(waits.request_count() - before, 2, "what is no better than the best costs nothing");
        guard.unlock().unwrap();
    });
}

/// A bulkhead of which each caller asks by itself.
struct Counted(Bulkhead);

impl Kind for Counted {
    const NAME: &'static str = "bulkhead";
    const RULE: &'static str = Bulkhead::RULE;
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.0.args()
    }
}

#[test]
fn a_kind_whose_callers_ask_by_themselves_keeps_the_contract() {
    contract::run(|client, name| client.lock_with_kind(name, Counted(Bulkhead(1))));
}

#[test]
fn its_callers_are_counted_while_other_locks_end() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.lock_with_kind("it", Counted(Bulkhead(1)));
    let counts = {
        let lock = lock.clone();
        thread::spawn(move || (0..30_000).for_each(|_| assert_eq!(lock.local_queue_length(), 0)))
    };
    let mut others: Vec<_> = (0..3)
        .map(|thread| {
            let client = client.clone();
            thread::spawn(move || {
                (0..30_000)
                    .for_each(|i| _ = client.simple_lock(&format!("{thread}-{i}")).local_queue_length())
            })
        })
        .collect();
    others.push(counts);
    // Not joined before: a thread that waits for itself does so for ever.
    wait_until(LONG, "all have ended", || others.iter().all(|thread| thread.is_finished()));
    others.into_iter().for_each(|thread| thread.join().unwrap());
}

struct Gate;

impl Kind for Gate {
    const NAME: &'static str = "gate";
    const RULE: &'static str = rule_file!("../../examples/own_gate.lua");
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;
}

#[test]
fn each_caller_at_a_gate_has_a_position_of_its_own_and_passes_when_it_is_opened() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let gate = |client: &Client| -> RedisLock<Gate> { client.lock_with_kind("it", Gate) };
    let (ours, theirs) = (gate(&here), gate(&there));
    let mut redis = server.connection().unwrap();
    let mut positions = || redis::cmd("ZCARD").arg("rc:{it}:queue").query::<u64>(&mut redis).unwrap();
    assert!(ours.try_lock().unwrap().is_none());
    assert_eq!(
        format!("{:?}", ours.inspect_state::<Vec<redis::Value>>("", Wait::forever()).unwrap()),
        "[int(0)]"
    );
    thread::scope(|scope| {
        let callers: Vec<_> =
            [&ours, &ours, &theirs, &ours].map(|gate| scope.spawn(|| gate.lock().map(drop))).into();
        wait_until(LONG, "each has a position", || positions() == 4);
        assert_eq!((ours.local_queue_length(), theirs.local_queue_length()), (3, 1));
        assert_eq!(ours.queue_length().unwrap(), 4);
        assert!(in_brief(ours.try_lock_for(ms(50))).is_none());
        theirs.update_state::<()>(&["open"]).unwrap();
        for caller in callers {
            caller.join().unwrap().unwrap();
        }
    });
    assert_eq!(positions(), 0);
    ours.lock().unwrap().unlock().unwrap();
    ours.update_state::<()>(&["close"]).unwrap();
    assert!(theirs.try_lock().unwrap().is_none());
}
