//! TLS to sentinels, to the servers that they name, and to the nodes of a cluster. All of them ask for a certificate.

use std::thread;

use redis_concurrent::{ErrorKind, Member, MultiLock, SimpleLock};
use redis_concurrent_testkit::{RedisCluster, SentinelFleet};

use super::*;

/// Longer than a failover takes on a busy machine.
const PATIENT: Duration = Duration::from_secs(60);
/// More names than leave any of three primaries without one.
const NAMES: usize = 24;

/// With a failover: the client hears of it by TLS, and finds the new primary.
#[test]
fn sentinels_and_their_servers() {
    let Some(authority) = Authority::new() else { return };
    let options = SentinelFleet::builder().password("s3cret/@").sentinel_password("an:other");
    // A server that a busy machine lets stand still is not to be replaced.
    let fleet = options.down_after(Duration::from_secs(10)).tls(&authority.files()).start().unwrap();
    let url = fleet.url();
    assert!(url.starts_with("rediss+sentinel://"), "{url}");
    is_refused(Client::builder().url(&url));
    is_refused(Authority::new().unwrap().client(&url));
    is_refused(authority.without_certificate(&url));

    let client = || {
        let builder = authority.client(&url).lease(PATIENT).unreachable_timeout(PATIENT);
        builder.connect_timeout(LONG).connect().unwrap()
    };
    let (one, two) = (client(), client());
    works(&one, &two);
    let kept = one.simple_lock("kept").with_replicas(1, LONG).lock_owned().unwrap();
    let waits = two.simple_lock("kept");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || one.simple_lock("kept").queue_length().unwrap() == 1);
        fleet.failover();
        let now = fleet.primary_after(0);
        wait_until(PATIENT, "it is renewed at the new primary", || kept.renew_for(PATIENT).is_ok());
        assert!(fleet.servers()[now].keys().unwrap().contains(&"rc:{kept}".to_owned()));
        if let Err(error) = kept.unlock() {
            // It was on its way as the former one was last heard: its reply did not count.
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        }
        waiter.join().unwrap();
    });
    works(&one, &two);
}

/// With a slot that moves: the address that a node tells is that of another's port for TLS.
#[test]
fn the_nodes_of_a_cluster() {
    let Some(authority) = Authority::new() else { return };
    let cluster = RedisCluster::builder().primaries(3).tls(&authority.files()).start().unwrap();
    let url = cluster.url();
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    is_refused(Client::builder().url(&url));
    is_refused(Authority::new().unwrap().client(&url));
    is_refused(authority.without_certificate(&url));

    // One node is enough to find the others.
    let seed = url.split_once(',').map_or(&*url, |(first, _)| first);
    let client = || authority.client(seed).connect().unwrap();
    let (one, two) = (client(), client());
    works(&one, &two);
    let names: Vec<_> = (0..NAMES).map(|i| format!("name {i}")).collect();
    let locks: Vec<SimpleLock> = names.iter().map(|name| one.simple_lock(name)).collect();
    let members: Vec<&dyn Member> = locks.iter().map(|lock| lock as &dyn Member).collect();
    let all = MultiLock::new(&members).lock_owned().unwrap();
    for node in cluster.primaries().unwrap() {
        assert!(!node.keys().unwrap().is_empty(), "a primary without a lock");
    }
    let waits = two.simple_lock(&names[0]);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || locks[0].queue_length().unwrap() == 1);
        let key = format!("rc:{{{}}}", names[0]);
        let from = cluster.primary_of(&key).unwrap().unwrap();
        let to = cluster.primaries().unwrap().into_iter().find(|node| node.port() != from.port()).unwrap();
        cluster.move_slot(cluster.slot_of(&key).unwrap(), &to).unwrap();
        all.unlock().unwrap();
        waiter.join().unwrap();
        assert_eq!(cluster.primary_of(&key).unwrap().unwrap().port(), to.port());
    });
    works(&one, &two);
}
