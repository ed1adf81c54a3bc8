//! Each holder has a lease of its own.

use redis_concurrent_testkit::eventually;

use super::{READ, WRITE, reading, rig};
use crate::rig::{Ask, LEASE, Rig, assert_busy, assert_in, server};
use crate::support::LONG;

#[test]
fn each_holder_has_a_lease_of_its_own_and_the_key_the_longest() {
    let mut rig = rig("leases");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    for (owner, lease) in [(&a, 60_000), (&b, 10_000), (&c, 20_000)] {
        reading(&rig.acquire("try", owner, Ask { lease, ..READ }).unwrap());
    }
    let close = |left: i64, lease: i64| left <= lease + 1 && left > lease - 5_000;
    for (owner, lease) in [(&a, 60_000), (&b, 10_000), (&c, 20_000)] {
        let left = rig.left(owner).unwrap();
        assert!(close(left, lease), "{left} of {lease}");
    }
    assert!(close(rig.pttl(0), 60_000));
    // One is renewed, also for less, and the others are not.
    assert_eq!(rig.renew(&b, 90_000).unwrap(), ["90000"]);
    assert!(close(rig.pttl(0), 90_000));
    assert_eq!(rig.renew(&b, 5_000).unwrap(), ["5000"]);
    let left = [&a, &b, &c].map(|owner| rig.left(owner).unwrap());
    assert!(close(left[0], 60_000) && left[1] <= 5_001 && close(left[2], 20_000), "{left:?}");
    assert!(rig.pttl(0) > 55_000, "a short lease does not cut the others short");
}

#[test]
fn renewing_never_creates() {
    let mut rig = rig("renew");
    let (a, b) = (rig.a(), rig.b());
    assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"]);
    assert!(rig.our_keys().is_empty());
    rig.reads(&a);
    assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "another one reads");
    rig.queues(&b, WRITE);
    assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "a queue position is not renewed");
    rig.set_lease(&a, -1);
    assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"], "what lapsed stays so");
    assert_in("the writer", &rig.acquire("keep", &b, WRITE).unwrap(), LEASE);
    assert_eq!(rig.inside(), [b]);
}

#[test]
fn a_reader_that_lapses_is_no_more_and_the_others_stay() {
    let mut rig = rig("lapse");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let mut inbox = rig.inbox(server(), "c");
    // Once more where the machine stood still, and it has lapsed meanwhile.
    let answer = eventually(LONG, || {
        rig.reads(&a);
        rig.reads(&b);
        rig.queues(&c, WRITE);
        let began = rig.now();
        // Sooner than the next heartbeat, and not before the next request.
        rig.set_lease(&a, 900);
        let answer = rig.acquire("keep", &c, WRITE).unwrap();
        if rig.now() - began < 900_000 {
            return Some(answer);
        }
        for owner in [&c, &b, &a] {
            rig.leave(owner);
        }
        None
    });
    let (_, again, _) = assert_busy("a lapses soon", &answer);
    assert!((1..=901).contains(&again), "{again}");
    rig.set_lease(&a, -1);
    assert_busy("b reads", &rig.acquire("keep", &c, WRITE).unwrap());
    assert_eq!(rig.inside(), [b.as_str()], "any look clears it away");
    assert_eq!(rig.leave(&a), ["0"]);
    rig.set_lease(&b, -1);
    // Anybody's request lets the writer in.
    assert_busy("nobody passes it", &rig.acquire("try", &a, READ).unwrap());
    assert_eq!(rig.received(&mut inbox, "c").len(), 1);
    assert_eq!((rig.inside(), rig.writer()), (vec![c.clone()], Some(c)));
}

#[test]
fn a_writer_that_lapses_leaves_its_reader_beside() {
    let mut rig = rig("lapse-writer");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    rig.queues(&b, READ);
    rig.set_lease(&a, -1);
    reading(&rig.acquire("keep", &b, READ).unwrap());
    assert_eq!((rig.inside(), rig.writer()), (vec![r.clone(), b.clone()], None));
    let c = rig.c();
    assert_busy("two read", &rig.acquire("try", &c, WRITE).unwrap());
}

#[test]
fn when_all_have_lapsed_the_state_is_blank() {
    let mut rig = rig("all-lapsed");
    let (a, b) = (rig.a(), rig.b());
    for ask in [READ, WRITE] {
        rig.acquire("try", &a, ask).unwrap();
        rig.set_lease(&a, -1);
        assert_eq!(rig.acquire("keep", &b, ask).unwrap(), ["-1", "gone"]);
        assert!(!rig.exists(0), "{}", ask.args);
    }
}

#[test]
fn every_key_has_a_time_to_live_at_every_step() {
    let mut rig = rig("ttl");
    let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
    let _inbox = rig.inbox(server(), "b");
    let check = |rig: &mut Rig, step: &str| {
        for i in rig.our_keys() {
            assert!(rig.pttl(i) > 0, "{} after {step}", rig.keys[i]);
        }
    };
    rig.writes(&a);
    check(&mut rig, "write");
    rig.queues(&b, WRITE);
    rig.queues(&c, READ);
    check(&mut rig, "wait");
    rig.acquire("wait", &r, Ask { from: &a, instead: true, ..READ }).unwrap();
    check(&mut rig, "downgrade");
    rig.renew(&r, LEASE).unwrap();
    check(&mut rig, "renew");
    rig.share(&r);
    check(&mut rig, "share");
    rig.leave_unsettled(&r).unwrap();
    check(&mut rig, "leave");
    assert_eq!(rig.our_keys(), [0, 1, 2, 3, 4], "all were there to be checked");
    assert_eq!(rig.writer(), Some(b));
}
