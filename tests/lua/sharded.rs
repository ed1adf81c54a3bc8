//! At a node of a cluster a process listens for each lock to a sharded channel, which has the lock's hash tag: by that
//! one, and not by a classic one of the same name, a grant stands or is taken back.

use redis::{Connection, cmd};
use redis_concurrent::kinds::{Kind, Simple};
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use crate::rig::{LEASE, OVERDUE, RECORD, Rig, WAITER_TIMEOUT};

/// A listener to the inbox of the client `who`, subscribed by this command.
fn listener(node: &RedisServer, rig: &Rig, verb: &str, who: &str) -> Connection {
    let mut connection = node.connection().unwrap();
    let channel = format!("{}{}-{who}", prefix(rig), rig.name);
    cmd(verb).arg(channel).exec(&mut connection).unwrap();
    connection
}

fn prefix(rig: &Rig) -> String {
    format!("rc:{{{}}}:inbox:", rig.name)
}

/// Its reply: `1` behind that of one that is busy if nobody listens for its process here.
fn waits(rig: &mut Rig, owner: &str) -> Vec<String> {
    let (source, prefix) = (rig.scripts.acquire.clone(), prefix(rig));
    let (lease, waiter_timeout) = (LEASE.to_string(), WAITER_TIMEOUT.to_string());
    rig.eval(&source, &[owner, &lease, &prefix, &waiter_timeout, "wait", "1", RECORD, "", ""]).unwrap()
}

fn leaves(rig: &mut Rig, owner: &str) {
    let (source, prefix) = (rig.scripts.leave.clone(), prefix(rig));
    rig.eval(&source, &[owner, "0", &prefix, "3000"]).unwrap();
}

#[test]
fn a_grant_stands_or_falls_by_the_sharded_channel_of_its_waiter() {
    let cluster = RedisCluster::start(1).unwrap();
    let node = cluster.nodes().remove(0);
    if cmd("PUBSUB").arg("SHARDCHANNELS").query::<Vec<String>>(&mut node.connection().unwrap()).is_err() {
        return; // Before 7.0 there are none: then the classic ones count, as everywhere else.
    }
    let mut rig = Rig::of(&node, "simple", Simple::RULE, "sharded");
    for (verb, hears) in [("SUBSCRIBE", false), ("SSUBSCRIBE", true)] {
        let [holder, waiter] = ["holder", verb].map(|who| rig.id(who, 1));
        let mut listener = listener(&node, &rig, verb, verb);
        waits(&mut rig, &holder);
        assert!(rig.left(&holder).is_some(), "{verb}");
        assert_eq!(waits(&mut rig, &waiter).get(4).is_some_and(|deaf| deaf == "1"), !hears, "{verb}");
        rig.age_position(&waiter, OVERDUE);
        leaves(&mut rig, &holder);
        // Given to the waiter, or taken back, and there is nobody in its place.
        assert_eq!((rig.left(&waiter).is_some(), rig.exists(0)), (hears, hears), "{verb}");
        assert!(rig.queue().is_empty(), "{verb}");
        if hears {
            let message = listener.recv_response().unwrap();
            assert!(format!("{message:?}").contains(&format!("{waiter} in ")), "{message:?}");
        }
    }
}
