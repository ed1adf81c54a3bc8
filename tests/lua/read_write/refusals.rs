//! What each half says of its holders, foreign keys, and a full Redis.

use redis::{Commands, cmd};
use redis_concurrent::kinds::{Kind, Read};

use super::{IN_ORDER, READ, WRITE, reading, rig};
use crate::rig::{Ask, LEASE, RECORD, Rig, WAITER_TIMEOUT, assert_busy, assert_in, int, server_that_fills};

#[test]
fn each_half_is_told_its_own_holders_and_nothing_is_written() {
    let mut rig = rig("inspect");
    let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
    for half in ["read", "write", "read-in-order"] {
        assert_eq!(rig.inspect_as(half).unwrap(), [vec!["0".to_owned()], vec![], vec![], vec![]]);
    }
    let number = rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    rig.queues(&b, WRITE);
    rig.queues(&c, READ);
    rig.age_position(&b, WAITER_TIMEOUT + 1_000);
    let before = rig.everything();
    for (half, owner) in [("write", &a), ("read", &r), ("read-in-order", &r)] {
        let inspected = rig.inspect_as(half).unwrap();
        assert_eq!(inspected[0], [number.to_string()], "{half}");
        assert_eq!(
            (inspected[1].len(), &inspected[1][0], inspected[1][2].as_str()),
            (3, owner, RECORD),
            "{half}"
        );
        let left = int(&inspected[1][1]);
        assert!(left <= LEASE + 1 && left > LEASE - 5_000, "{half}: {left}");
        assert_eq!(inspected[2], [c.clone(), RECORD.to_owned()], "{half}: the silent one is not told");
    }
    assert_eq!(rig.everything(), before);
}

#[test]
fn a_foreign_key_is_refused_and_never_written() {
    let mut rig = rig("foreign");
    let (a, b) = (rig.a(), rig.b());
    let makes: [(&str, &[&str]); 4] = [
        ("SET", &["x"]),
        ("RPUSH", &["x"]),
        ("HSET", &["kind", "reentrant lock"]),
        ("HSET", &["writer", "x"]),
    ];
    for (verb, rest) in makes {
        let _: () = cmd(verb).arg(&rig.keys[0]).arg(rest).query(&mut rig.con).unwrap();
        let before = rig.everything();
        let refused = |error: String| error.contains("WRONGTYPE");
        for how in ["try", "wait", "keep", "share"] {
            for ask in [READ, WRITE, Ask { from: &b, instead: true, ..READ }] {
                let error = rig.acquire(how, &a, ask).unwrap_err().to_string();
                assert!(refused(error), "{verb} {how} {}", ask.args);
            }
        }
        assert!(refused(rig.inspect_as("read").unwrap_err().to_string()), "{verb}");
        for error in [rig.leave_unsettled(&a).err(), rig.leave_for(&a, false, &b, "write").err()] {
            assert!(refused(error.map(|e| e.to_string()).unwrap_or_default()), "{verb}");
        }
        assert_eq!(rig.everything()[0], before[0], "{verb}: the foreign key");
        let _: () = rig.con.del(&rig.keys).unwrap();
    }
}

#[test]
fn a_full_redis_refuses_newcomers_and_nothing_else() {
    let server = server_that_fills();
    let mut rig = Rig::of(&server, "read-write", Read::RULE, "full");
    let (a, b, c, d, e) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1), rig.id("c", 2));
    let _inboxes = ["b", "c"].map(|who| rig.inbox(&server, who));
    rig.full(true);
    for how in ["try", "wait"] {
        for ask in [READ, IN_ORDER, WRITE] {
            rig.has_no_room_for(how, &a, ask);
        }
    }
    rig.full(false);
    rig.reads(&a);
    rig.reads(&b);
    rig.queues(&c, WRITE);
    rig.queues(&e, READ);
    rig.full(true);
    let before = rig.everything();
    for ask in [READ, WRITE] {
        rig.acquire("wait", &d, ask).unwrap_err();
        assert_eq!(rig.everything(), before, "{}: a newcomer leaves no trace", ask.args);
    }
    // Holds and queue positions stay, and questions are answered.
    for owner in [&a, &b] {
        assert_eq!(rig.renew(owner, LEASE).unwrap(), [LEASE.to_string()]);
    }
    assert_busy("its queue position", &rig.acquire("keep", &c, WRITE).unwrap());
    assert_busy("its share", &rig.share(&a));
    // A hold that is released or lapses lets the next ones in.
    assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"]);
    rig.set_lease_in_full(&b);
    assert_in("the writer", &rig.acquire("keep", &c, WRITE).unwrap(), LEASE);
    assert_eq!(rig.leave_unsettled(&c).unwrap(), ["1"]);
    assert_eq!(rig.inside(), [e.as_str()]);
    assert_eq!(rig.leave_for(&e, true, &d, "write").unwrap()[..2], ["1", "1"]);
    assert_eq!(rig.writer(), Some(d.clone()));
    // A reader in place of the writer takes no more room than the writer did; beside it, it would.
    let (beside, r) = (Ask { from: &d, ..READ }, rig.id("d", 2));
    rig.acquire("wait", &r, beside).unwrap_err();
    reading(&rig.acquire("wait", &r, Ask { instead: true, ..beside }).unwrap());
    assert_eq!((rig.inside(), rig.writer()), (vec![r], None));
    rig.full(false);
}
