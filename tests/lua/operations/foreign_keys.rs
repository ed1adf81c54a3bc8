//! Keys that another program or another kind has written.

use redis::{Commands, cmd};
use redis_concurrent::kinds::{Kind, Simple};

use super::rigs;
use crate::rig::{LEASE, Rig, USUAL, assert_busy, server};

#[test]
fn a_bare_key_of_somebody_else_is_a_simple_lock_that_is_held() {
    let mut rig = Rig::of(server(), "simple", Simple::RULE, "bare");
    let _: () = rig.con.set(&rig.keys[0], "another client's text").unwrap();
    let a = rig.a();
    let (floor, again, _) = assert_busy("simple", &rig.try_(&a));
    assert_eq!(floor, 0);
    assert!(again <= 1_000, "{again}");
    let inspected = rig.inspect().unwrap();
    assert_eq!(inspected[1], ["another client's text", "-1", ""], "no end, no record");
    assert_eq!(rig.leave(&a), ["0"]);
    assert!(rig.exists(0));
}

/// It names the key, and says what that is.
fn refuses(error: &str, key: &str) -> bool {
    error.contains(&format!("WRONGTYPE key \"{key}\" is a"))
}

#[test]
fn a_foreign_key_is_refused_and_never_written() {
    for mut rig in rigs("foreign") {
        let makes: Vec<(&str, &[&str])> = match rig.kind {
            "simple" => vec![("HSET", &["kind", "reentrant lock"]), ("RPUSH", &["x"])],
            "reentrant" => vec![("SET", &["x"]), ("HSET", &["kind", "another"]), ("HSET", &["field", "x"])],
            _ => vec![("SET", &["x"]), ("HSET", &["kind", "x"])],
        };
        for (verb, rest) in makes {
            let (a, b) = (rig.a(), rig.b());
            let _: () = cmd(verb).arg(&rig.keys[0]).arg(rest).query(&mut rig.con).unwrap();
            let before = rig.everything();
            for how in ["try", "wait", "keep"] {
                let error = rig.acquire(how, &a, USUAL).unwrap_err();
                assert!(refuses(&error.to_string(), &rig.keys[0]), "{} {how}: {error}", rig.kind);
            }
            let error = rig.inspect().unwrap_err();
            assert!(refuses(&error.to_string(), &rig.keys[0]), "{}: {error}", rig.kind);
            assert_eq!(rig.everything(), before, "{} {verb}: nothing was written", rig.kind);
            // What leaves or renews finds that it is not inside.
            match rig.renew(&a, LEASE) {
                Ok(answer) => assert_eq!(answer, ["-1"], "{}", rig.kind),
                Err(error) => assert!(error.to_string().contains("WRONGTYPE"), "{}: {error}", rig.kind),
            }
            for error in [rig.leave_unsettled(&a).err(), rig.leave_next(&a, false, &b).err()] {
                let error = error.map(|e| e.to_string()).unwrap_or_default();
                assert!(error.contains("WRONGTYPE"), "{}: {error}", rig.kind);
            }
            assert_eq!(rig.everything()[0], before[0], "{} {verb}: the foreign key", rig.kind);
            let _: () = rig.con.del(&rig.keys).unwrap();
        }
    }
}
