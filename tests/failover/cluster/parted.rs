//! A primary that is cut off from most of its cluster, together with some clients.

use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::{RedisCluster, RedisServer, wait_until};

use super::{home, key};
use crate::server_days::connected;
use crate::support::{Event, LONG, Recorder, builder, ms};

/// A primary that has not heard from most others for so long refuses requests; they give its slots to its replica. Longer
/// than two grants take on a busy machine.
const SILENT: Duration = ms(4000);
/// How long it may take beyond that: half of it until it had something to hear, and the vote.
const BUSY: Duration = ms(10_000);
/// Longer than all of it.
const LEASE: Duration = ms(60_000);

/// Three primaries with a replica each, of which one can be cut off; `None` where servers cannot do that.
fn that_parts() -> Option<RedisCluster> {
    let server = RedisServer::start().unwrap();
    let known: Vec<String> = redis::cmd("CONFIG")
        .arg("GET")
        .arg("bind-source-addr")
        .query(&mut server.connection().unwrap())
        .unwrap();
    if known.is_empty() {
        eprintln!("NOTHING IS TESTED: a node before Redis 7.0 cannot be cut off");
        return None;
    }
    Some(RedisCluster::builder().replicas(1).node_timeout(SILENT).behind_proxies().start().unwrap())
}

/// A client that does not wait long for what it does not reach.
fn connect(url: &str, lease: Duration, recorder: &Recorder) -> Client {
    connected(|| {
        let client = builder(url).lease(lease).command_timeout(ms(1000)).connect_timeout(ms(1000));
        client.unreachable_timeout(ms(3000)).observer(recorder.clone())
    })
}

/// The former primary grants to the clients that are with it, of which the others know nothing, and grant as well: until it
/// has missed the others for the node timeout. Then it takes no request, so what it granted ends with its lease. Who holds
/// longer is told when he asks and reaches the others, and comes after them.
#[test]
fn clients_that_are_cut_off_with_a_primary_hold_beside_others_for_a_lease_at_most() {
    let Some(cluster) = that_parts() else { return };
    let (recorder, short_lease) = (Recorder::default(), ms(5000));
    let former = cluster.primaries().unwrap().remove(0);
    let mut names = (0..).map(|i| format!("parted {i}"));
    let [name, brief, more] = [(); 3]
        .map(|()| names.find(|it| home(&cluster, it).port() == former.port()).expect("they are everywhere"));
    let apart = connect(&cluster.url_apart(), LEASE, &Recorder::default());
    let apart_briefly = connect(&cluster.url_apart(), short_lease, &recorder);
    let others = connect(&cluster.url(), LEASE, &Recorder::default());
    for client in [&apart, &apart_briefly, &others] {
        client.simple_lock(&name).lock().unwrap().unlock().unwrap();
    }
    let replica = cluster.replicas_of(&former).unwrap().remove(0);
    wait_until(LONG, "its replica knows that they are free", || {
        replica.keys().unwrap() == former.keys().unwrap()
    });

    cluster.part(&former);
    let (lock, brief_lock) = (apart.simple_lock(&name), apart_briefly.simple_lock(&brief));
    let (guard, brief_guard) = (lock.lock().unwrap(), brief_lock.lock().unwrap());
    assert!(others.simple_lock(&name).try_lock().is_err(), "the others do not reach it");
    wait_until(SILENT + BUSY, "it refuses requests", || {
        let reply = redis::cmd("GET").arg(key(&more)).exec(&mut former.connection().unwrap());
        reply.is_err_and(|e| e.code() == Some("CLUSTERDOWN"))
    });
    let refused = apart.simple_lock(&more).try_lock_owned().unwrap_err();
    assert!(refused.is_unavailable(), "{refused:#}");
    // Both are held by two.
    let now_at = || cluster.primary_of(&key(&name)).unwrap().map(|it| it.port());
    wait_until(SILENT + BUSY, "its replica has its slots", || now_at() != Some(former.port()));
    let held = others.simple_lock(&name).lock_owned_with(LONG).unwrap().expect("nobody else has it there");
    assert!(!guard.is_lost(), "nobody can tell it");
    assert!(held.token() > guard.token());

    // Without the others: nothing is renewed.
    wait_until(SILENT + BUSY + short_lease, "it ends with its lease", || brief_guard.is_lost());
    wait_until(LONG, "it is told", || recorder.count(Event::Lost(LossReason::Expired)) == 1);
    assert!(brief_guard.unlock().unwrap_err().is_lease_lost());

    cluster.heal().unwrap();
    wait_until(LEASE / 3 + BUSY, "it is told with its next renewal", || guard.is_lost());
    let token = guard.token();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(!held.is_lost());
    wait_until(LONG, "it reaches the others", || lock.is_locked().is_ok());
    assert!(lock.try_lock().unwrap().is_none());
    held.unlock().unwrap();
    let after = lock.try_lock_for(LONG).unwrap().expect("it is free");
    assert!(after.token() > token);
}
