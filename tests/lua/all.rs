//! Several locks in one script, straight against a server, below the client: all or nothing.

use redis::{Value, cmd};
use redis_concurrent::kinds::{Kind, Permits, Read, Reentrant, Simple};

use crate::rig::{Ask, PREFIX, RECORD, Rig, USUAL, server, server_that_fills, texts};

/// Locks of one kind.
struct Several(Vec<Rig>);

impl Several {
    fn of<K: Kind>(n: usize, test: &str) -> Several {
        let rig = |i| Rig::of(server(), K::NAME, K::RULE, &format!("{test}-{i}"));
        Several((0..n).map(rig).collect())
    }

    fn run(&mut self, operation: &str, each: &[Vec<String>]) -> Vec<Value> {
        let keys: Vec<_> = self.0.iter().flat_map(|rig| rig.keys.clone()).collect();
        let mut eval = cmd("EVAL");
        eval.arg(&self.0[0].scripts.all).arg(keys.len()).arg(&keys).arg(operation);
        for args in each {
            eval.arg(args.len()).arg(args);
        }
        let packed = eval.get_packed_command();
        match redis::ConnectionLike::req_packed_command(&mut self.0[0].con, &packed).unwrap() {
            Value::Array(answers) => answers,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for each of them for its owner `a`.
    fn acquire_as(&mut self, how: &str, args: &str) -> Vec<Value> {
        let ask = |rig: &Rig| -> Vec<String> {
            [&*rig.a(), "30000", PREFIX, "3000", how, args, RECORD].map(str::to_owned).into()
        };
        let each: Vec<_> = self.0.iter().map(ask).collect();
        self.run("acquire", &each)
    }

    fn acquire(&mut self) -> Vec<Value> {
        self.acquire_as("try", "1")
    }

    fn leave(&mut self) -> Vec<Value> {
        let ask = |rig: &Rig| [&*rig.a(), "0", PREFIX, "3000"].map(str::to_owned).into();
        let each: Vec<_> = self.0.iter().map(ask).collect();
        self.run("leave", &each)
    }

    /// The length of a waiter timeout.
    fn held(&mut self) -> Vec<bool> {
        let holds = |rig: &mut Rig| rig.inspect_as(rig.args()).unwrap()[1].first() == Some(&rig.a());
        self.0.iter_mut().map(holds).collect()
    }
}

trait AsHalf {
    fn args(&self) -> &'static str;
}

impl AsHalf for Rig {
    fn args(&self) -> &'static str {
        if self.kind == "read lock" { "read" } else { "" }
    }
}

fn is_in(answer: &Value) -> bool {
    matches!(answer, Value::Int(1..)) || texts(answer)[0] == "1"
}

fn error(answer: &Value) -> String {
    match answer {
        Value::ServerError(e) => e.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_are_taken_and_all_leave_in_one_step() {
    for mut all in [Several::of::<Reentrant>(10, "all"), Several::of::<Simple>(10, "all")] {
        let answers = all.acquire();
        assert!(answers.len() == 10 && answers.iter().all(is_in), "{answers:?}");
        assert_eq!(all.held(), [true; 10]);
        assert!(all.acquire().iter().all(is_in), "sent twice, it finds itself inside");
        let left = all.leave();
        assert_eq!(left, vec![Value::Int(1); 10]);
        assert_eq!(all.leave(), vec![Value::Int(0); 10]);
        for rig in &mut all.0 {
            assert_eq!(rig.our_keys(), [3], "but for the fence nothing is left");
        }
    }
}

#[test]
fn one_that_is_busy_leaves_none_taken_and_ends_the_list() {
    for busy in 0..4 {
        let mut all = Several::of::<Reentrant>(4, &format!("busy-{busy}"));
        let other = all.0[busy].b();
        all.0[busy].try_(&other);
        let answers = all.acquire();
        assert_eq!(answers.len(), busy + 1);
        assert!(answers[..busy].iter().all(is_in));
        let last = texts(&answers[busy]);
        assert_eq!((&*last[0], &*last[3]), ("0", ""), "busy, and without a queue position");
        assert_eq!(all.held(), [false; 4]);
        let untouched = all.0[busy + 1..].iter_mut().all(|rig| rig.our_keys().is_empty());
        assert!(untouched, "those behind it were not asked for");
        all.0[busy].leave(&other);
        assert_eq!(all.acquire().len(), 4);
        assert_eq!(all.held(), [true; 4], "what was given back has no tombstone");
    }
}

#[test]
fn a_foreign_key_is_told_in_its_place_and_leaves_none_taken() {
    let mut all = Several::of::<Reentrant>(3, "foreign");
    let key = all.0[1].keys[0].clone();
    let _: () = cmd("HSET").arg(&key).arg("mine").arg(1).query(&mut all.0[1].con).unwrap();
    let answers = all.acquire();
    assert_eq!(answers.len(), 2);
    assert!(error(&answers[1]).contains("WRONGTYPE") && error(&answers[1]).contains(&key), "{answers:?}");
    let mine: Vec<String> = cmd("HKEYS").arg(&key).query(&mut all.0[1].con).unwrap();
    assert_eq!(mine, ["mine"]);
    let _: () = cmd("DEL").arg(&key).query(&mut all.0[1].con).unwrap();
    assert_eq!(all.held(), [false; 3]);
}

#[test]
fn a_refusal_leaves_none_taken() {
    let mut all = Several::of::<Permits>(3, "refused");
    for (i, rig) in all.0.iter_mut().enumerate() {
        rig.update("setter:1", &["set", if i == 2 { "1" } else { "5" }]).unwrap();
    }
    let answers = all.acquire_as("try", "3");
    assert_eq!(texts(&answers[2])[0], "-1");
    assert_eq!(all.held(), [false; 3]);
    assert_eq!(all.acquire_as("try", "1").len(), 3);
    assert_eq!(all.held(), [true; 3]);
}

#[test]
fn what_cannot_leave_does_not_keep_the_others() {
    let mut all = Several::of::<Reentrant>(3, "stuck");
    all.acquire();
    let key = all.0[1].keys[0].clone();
    let _: () = cmd("SET").arg(&key).arg("mine").query(&mut all.0[1].con).unwrap();
    let left = all.leave();
    assert_eq!((&left[0], &left[2]), (&Value::Int(1), &Value::Int(1)));
    assert!(error(&left[1]).contains("WRONG"), "{left:?}");
}

#[test]
fn a_waiter_comes_in_as_all_leave_and_the_next_is_asked_for_in_the_same_step() {
    let mut all = Several::of::<Reentrant>(2, "next");
    all.acquire();
    let waiter = all.0[0].b();
    let mut inbox = all.0[0].inbox(server(), "b");
    assert_eq!(all.0[0].wait(&waiter)[0], "0");
    let next = all.0[1].id("a", 2);
    let (first, second) = (all.0[0].a(), all.0[1].a());
    let each = [
        [&*first, "0", PREFIX, "3000"].map(str::to_owned).to_vec(),
        [&*second, "30000", PREFIX, "3000", "0", "1", RECORD, &next].map(str::to_owned).to_vec(),
    ];
    let left = all.run("leave", &each);
    assert_eq!(left[0], Value::Int(1));
    assert_eq!(texts(&left[1])[..2], ["1", "1"], "out, and the next one in");
    assert!(crate::rig::next_message(&mut inbox).starts_with(&format!("{waiter} in ")));
    assert_eq!(all.0[1].inspect().unwrap()[1][0], next);
}

#[test]
fn a_hold_that_is_only_to_be_shared_is_not_given_back_with_the_others() {
    let mut all = Several::of::<Read>(2, "share");
    let (reader, writer) = (all.0[0].a(), all.0[1].b());
    let ask = |args| Ask { args, ..USUAL };
    all.0[0].acquire("try", &reader, ask("read")).unwrap();
    all.0[1].acquire("try", &writer, ask("write")).unwrap();
    let each = [("share", &all.0[0]), ("try", &all.0[1])].map(|(how, rig)| {
        [&*rig.a(), "30000", PREFIX, "3000", how, "read", RECORD].map(str::to_owned).to_vec()
    });
    let answers = all.run("acquire", &each);
    assert!(is_in(&answers[0]) && texts(&answers[1])[0] == "0", "{answers:?}");
    assert_eq!(all.held(), [true, false]);
}

#[test]
fn a_full_server_takes_none_and_lets_all_leave() {
    let server = server_that_fills();
    let rig = |i| Rig::of(&server, Reentrant::NAME, Reentrant::RULE, &format!("full-{i}"));
    let mut all = Several((0..3).map(rig).collect());
    all.acquire();
    all.0[0].full(true);
    assert_eq!(all.leave(), vec![Value::Int(1); 3]);
    let answers = all.acquire();
    assert_eq!(answers.len(), 1);
    let message = error(&answers[0]);
    assert!(message.contains("OOM") || message.contains("maxmemory"), "{message}");
    all.0[0].full(false);
    assert_eq!(all.held(), [false; 3]);
}

#[test]
fn what_was_taken_before_is_as_if_it_had_never_been_asked_for() {
    let mut all = Several::of::<Reentrant>(3, "trace");
    // Somebody waits at the first, whose holder has just lapsed, so that it comes in before any caller that tries.
    let (holder, waiter) = (all.0[0].c(), all.0[0].b());
    all.0[0].try_(&holder);
    all.0[0].wait(&waiter);
    let _inbox = all.0[0].inbox(server(), "b");
    all.0[0].leave(&holder);
    assert_eq!(all.acquire().len(), 1, "it is the waiter's");
    let other = all.0[2].b();
    all.0[2].try_(&other);
    all.0[0].leave(&waiter);
    let before: Vec<_> = all.0[..2].iter_mut().map(|rig| rig.our_keys()).collect();
    assert_eq!(before, [vec![3], vec![]]);
    assert_eq!(all.acquire().len(), 3);
    let after: Vec<_> = all.0[..2].iter_mut().map(|rig| rig.our_keys()).collect();
    assert_eq!(after, [[3], [3]], "a number was given, and no more");
}

/// The owner's hold may be another thread's of its process by now: that asked under it after it was given back.
#[test]
fn a_late_copy_gives_back_nothing_that_was_there_before() {
    for mut all in [Several::of::<Reentrant>(3, "late"), Several::of::<Simple>(3, "late")] {
        let (inside, other) = (all.0[1].a(), all.0[2].b());
        all.0[1].try_(&inside);
        all.0[2].try_(&other);
        let answers = all.acquire();
        assert!(answers.len() == 3 && is_in(&answers[1]) && texts(&answers[2])[0] == "0", "{answers:?}");
        assert_eq!(all.held(), [false, true, false]);
    }
}
