//! A full Redis, and a user without the right to publish.

use redis::cmd;
use redis_concurrent_testkit::RedisServer;

use super::rigs_on;
use crate::rig::{FIRST, LEASE, PREFIX, USUAL, assert_busy, assert_in, int, received, server_that_fills};

#[test]
fn a_full_redis_refuses_newcomers_and_nothing_else() {
    let server = server_that_fills();
    for mut rig in rigs_on(&server, "full") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let (e, f) = (rig.id("e", 1), rig.id("f", 1));
        let _inbox = rig.inbox(&server, "b");
        rig.full(true);
        for how in ["try", "wait"] {
            rig.has_no_room_for(how, &a, USUAL);
        }
        rig.full(false);
        rig.try_(&a);
        rig.wait(&b);
        rig.full(true);
        let before = rig.everything();
        // A rule that prunes its own state first has written something that cannot grow: it passes.
        if rig.kind != "bulkhead" {
            rig.acquire("wait", &c, USUAL).unwrap_err();
            assert_eq!(rig.everything(), before, "{}: a newcomer leaves no trace", rig.kind);
        }
        // Holds and queue positions stay.
        assert!(int(&rig.renew(&a, LEASE).unwrap()[0]) > 0, "{}", rig.kind);
        assert_busy(rig.kind, &rig.acquire("keep", &b, USUAL).unwrap());
        // A leave lets the next one in, with its number, its message and the tombstone.
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"], "{}", rig.kind);
        assert!(rig.left(&b).is_some(), "{}", rig.kind);
        assert_eq!(rig.wait(&a), ["-1", "over"], "{}", rig.kind);
        // Also one that was not inside, and with an ask for the next of its process.
        assert_eq!(rig.leave_unsettled(&e).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.leave_next(&b, true, &f).unwrap()[..2], ["1", "1"], "{}", rig.kind);
        assert!(rig.left(&f).is_some(), "{}", rig.kind);
        rig.full(false);
    }
}

#[test]
fn without_the_right_to_publish_a_grant_counts_as_heard() {
    let server = RedisServer::start().unwrap();
    for mut rig in rigs_on(&server, "acl") {
        let (a, b) = (rig.a(), rig.b());
        let mut admin = server.connection().unwrap();
        let rules = ["on", "nopass", "~rc:*", "resetchannels", "+@all"];
        let _: () = cmd("ACL").arg("SETUSER").arg("mute").arg(&rules).query(&mut admin).unwrap();
        let mut inbox = rig.inbox(&server, "b");
        let _: () = cmd("AUTH").arg("mute").arg("x").query(&mut rig.con).unwrap();
        rig.try_(&a);
        rig.wait(&b);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        // It has the lock, and its own next heartbeat tells it.
        assert_in(rig.kind, &rig.keep(&b), FIRST);
        let channel = format!("{PREFIX}{}-b", rig.name);
        assert!(received(&server, &mut inbox, &channel).is_empty(), "{}", rig.kind);
    }
}
