//! Partitions: who owns what, how it moves, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client, ErrorKind};
use redis_concurrent_partitions::{Partition, Partitions, Share};
use redis_concurrent_testkit::{RedisCluster, RedisServer, SentinelFleet, eventually, wait_until};

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);

fn client(url: &str) -> Client {
    Client::builder().url(url).lease(LONG).connect().unwrap()
}

/// What has arrived, by number, until there are `n`.
fn receive(share: &Share, into: &mut BTreeMap<u32, Partition>, n: usize) {
    while into.len() < n {
        let partition = share.partitions().recv_timeout(LONG).expect("it comes");
        assert!(into.insert(partition.number(), partition).is_none());
    }
}

/// Gives back what is revoked, until `n` are left.
fn give_back(from: &mut BTreeMap<u32, Partition>, n: usize) {
    wait_until(LONG, "they are revoked", || {
        from.retain(|_, partition| !partition.revoked().is_cancelled());
        from.len() <= n
    });
    assert_eq!(from.len(), n);
}

#[test]
fn what_moves_is_drained_first_and_no_more_moves_than_must() {
    let server = RedisServer::start().unwrap();
    let [a, b, c] = [(); 3].map(|()| Partitions::new(&client(&server.url()), "orders", 10));
    let (first, mut mine) = (a.join("a").unwrap(), BTreeMap::new());
    receive(&first, &mut mine, 10);
    assert!(mine.values().all(|it| it.remaining() > LONG / 2 && !it.lost().is_cancelled()));
    let tokens: BTreeMap<u32, u64> = mine.iter().map(|(k, it)| (*k, it.token())).collect();

    let (second, mut its) = (b.join("b").unwrap(), BTreeMap::new());
    wait_until(LONG, "half is revoked", || {
        mine.values().filter(|it| it.revoked().is_cancelled()).count() == 5
    });
    assert!(second.partitions().try_recv().is_err(), "none has been given back");
    assert!(mine.values().all(|it| !it.lost().is_cancelled()), "the grace has not ended");
    give_back(&mut mine, 5);
    receive(&second, &mut its, 5);
    assert!(its.values().all(|it| it.token() > tokens[&it.number()]));
    let owners = a.owners().unwrap();
    assert_eq!(owners.len(), 10);
    for owner in owners {
        let of = if mine.contains_key(&owner.partition) { "a" } else { "b" };
        assert_eq!(owner.member.expect("it is planned").value, of);
        assert!(owner.held_by.expect("it is owned").starts_with(&std::process::id().to_string()));
    }

    // Three shares of 3, 3 and 4: the third takes from both, and nothing moves between these.
    let third = c.join("c").unwrap();
    wait_until(LONG, "three are revoked", || {
        mine.values().chain(its.values()).filter(|it| it.revoked().is_cancelled()).count() == 3
    });
    let kept: BTreeSet<u32> = mine
        .values()
        .chain(its.values())
        .filter(|it| !it.revoked().is_cancelled())
        .map(Partition::number)
        .collect();
    mine.retain(|_, it| !it.revoked().is_cancelled());
    its.retain(|_, it| !it.revoked().is_cancelled());
    assert!(mine.len().abs_diff(its.len()) <= 1);
    let mut thirds = BTreeMap::new();
    receive(&third, &mut thirds, 3);
    assert!(thirds.keys().all(|k| !kept.contains(k)));

    // One leaves: only its partitions move.
    drop(its);
    let gone = kept.iter().filter(|k| !mine.contains_key(k)).count();
    second.leave().unwrap();
    let expected = 10 - mine.len() - thirds.len();
    assert_eq!(expected, gone);
    for n in 0..gone {
        let got = eventually(LONG, || first.partitions().try_recv().or(third.partitions().try_recv()).ok());
        assert!(n < gone && kept.contains(&got.number()));
        mine.insert(got.number(), got);
    }
    assert!(mine.values().all(|it| !it.revoked().is_cancelled()));
    drop((mine, thirds));
    first.leave().unwrap();
    third.leave().unwrap();
    assert!(a.owners().unwrap().iter().all(|it| it.member.is_none() && it.held_by.is_none()));
    assert!(Partitions::of(&client(&server.url()), "orders").unwrap().is_none());
}

#[test]
fn an_owner_that_does_not_finish_loses_it_when_its_grace_ends() {
    let server = RedisServer::start().unwrap();
    let partitions = Partitions::new(&client(&server.url()), "orders", 2).grace(Duration::from_millis(300));
    let first = partitions.join("a").unwrap();
    let mut mine = BTreeMap::new();
    receive(&first, &mut mine, 2);
    let began = Instant::now();
    let second = Partitions::new(&client(&server.url()), "orders", 2).join("b").unwrap();
    let its = second.partitions().recv_timeout(LONG).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(300));
    let lost = mine.remove(&its.number()).unwrap();
    assert!(lost.revoked().is_cancelled() && lost.lost().is_cancelled() && lost.remaining().is_zero());
    assert!(its.token() > lost.token());
    assert_eq!(lost.give_back().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(!its.lost().is_cancelled() && mine.values().all(|it| !it.revoked().is_cancelled()));

    // Leaving waits for no longer than the grace, either.
    first.leave().unwrap();
    assert!(mine.values().all(|it| it.lost().is_cancelled()));
    drop(second);
    assert!(its.lost().wait_timeout(LONG), "dropping the share does the same in the background");
}

#[test]
fn what_is_given_back_without_need_comes_again() {
    let server = RedisServer::start().unwrap();
    let share = Partitions::new(&client(&server.url()), "orders", 1).join("a").unwrap();
    let first = share.partitions().recv_timeout(LONG).unwrap();
    let (token, began) = (first.token(), Instant::now());
    first.give_back().unwrap();
    let again = share.partitions().recv_timeout(LONG).unwrap();
    assert!(again.token() > token && began.elapsed() >= Duration::from_millis(900));

    // So does one whose lock was broken.
    let lock = Partitions::new(&client(&server.url()), "orders", 1).lock(0);
    lock.force_unlock().unwrap();
    assert!(again.lost().wait_timeout(LONG) && again.revoked().wait_timeout(LONG));
    drop(again);
    assert!(share.partitions().recv_timeout(LONG).is_ok());
}

#[test]
fn a_callback_that_panics_gives_its_partition_back() {
    let server = RedisServer::start().unwrap();
    let share = Partitions::new(&client(&server.url()), "orders", 4).join("a").unwrap();
    let (stop, panics, others) = (CancellationToken::new(), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            share.run(&stop, |partition| {
                assert_eq!(
                    thread::current().name(),
                    Some(&*format!("orders:partition:{}", partition.number()))
                );
                if partition.number() == 2 {
                    panics.fetch_add(1, Ordering::SeqCst);
                    panic!("as planned");
                }
                others.fetch_add(1, Ordering::SeqCst);
                while !partition.revoked().wait_timeout(LONG) {}
            })
        });
        wait_until(LONG, "it is tried again", || panics.load(Ordering::SeqCst) >= 2);
        assert_eq!(others.load(Ordering::SeqCst), 3);
        stop.cancel();
        run.join().unwrap().unwrap();
    });
    let after = Partitions::new(&client(&server.url()), "orders", 4).owners().unwrap();
    assert!(after.iter().all(|it| it.held_by.is_none()));
}

#[test]
fn what_cannot_be_is_refused() {
    let server = RedisServer::start().unwrap();
    let client = client(&server.url());
    for (count, named) in [(0, "got 0"), (1_000_000, "got 1000000")] {
        let error = Partitions::new(&client, "orders", count).join("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("1024") && error.to_string().contains(named), "{error}");
    }
    for grace in [Duration::ZERO, LONG / 2, LONG * 2] {
        let error = Partitions::new(&client, "orders", 8).grace(grace).join("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error.to_string().contains("10s") && error.to_string().contains(&format!("{grace:?}")),
            "{error}"
        );
    }
    for name in ["", &"n".repeat(1025), &"n".repeat(1007)] {
        let error = Partitions::new(&client, name, 8).join("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    // The members' name is longer than that of each lock, so these fit if it does.
    let longest = Partitions::new(&client, &"n".repeat(1006), 1024);
    longest.lock(1023).lock().unwrap().unlock().unwrap();
    let share = longest.grace(LONG / 3).join("a").unwrap();
    drop(share.partitions().recv_timeout(LONG).unwrap());
    share.leave().unwrap();

    let share = Partitions::new(&client, "orders", 64).join("a").unwrap();
    let error = Partitions::new(&client, "orders", 32).join("b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let [one, other] =
        [&format!("\"a\" of {}@", std::process::id()), " shares 64 partitions, and \"b\" would share 32"];
    assert!(error.to_string().contains(one) && error.to_string().contains(other), "{error}");
    assert_eq!(Partitions::of(&client, "orders").unwrap().unwrap().count(), 64);
    share.leave().unwrap();
    // Nobody is left to disagree.
    Partitions::new(&client, "orders", 32).join("b").unwrap().leave().unwrap();

    // What one process has in the way of a partition ends the share, which says so.
    redis_concurrent::redis::cmd("SET")
        .arg("rc:{odd:partition:3}")
        .arg(1)
        .exec(&mut server.connection().unwrap())
        .unwrap();
    let share = Partitions::new(&client, "odd", 8).join("a").unwrap();
    let mine: Vec<_> = share.partitions().iter().collect();
    assert!(!mine.is_empty() && mine.iter().all(|it| it.revoked().is_cancelled()));
    drop(mine);
    assert_eq!(share.leave().unwrap_err().kind(), ErrorKind::WrongType);
}

/// Two shares of one client are two members; and who has left may join again.
#[test]
fn a_process_may_join_twice_and_join_again() {
    let server = RedisServer::start().unwrap();
    let partitions = Partitions::new(&client(&server.url()), "orders", 4);
    let (first, mut mine) = (partitions.join("a").unwrap(), BTreeMap::new());
    receive(&first, &mut mine, 4);
    let (second, mut its) = (partitions.join("b").unwrap(), BTreeMap::new());
    give_back(&mut mine, 2);
    receive(&second, &mut its, 2);
    drop(mine);
    first.leave().unwrap();
    receive(&second, &mut its, 4);
    let (again, mut mine) = (partitions.join("a").unwrap(), BTreeMap::new());
    give_back(&mut its, 2);
    receive(&again, &mut mine, 2);
    // What outlives its share is lost when its grace ends.
    drop(again);
    assert!(mine.values().all(|it| it.revoked().wait_timeout(LONG) && it.lost().wait_timeout(LONG)));
    receive(&second, &mut its, 4);
}

#[test]
fn a_client_that_is_closed_ends_its_share() {
    let server = RedisServer::start().unwrap();
    let ours = client(&server.url());
    let share = Partitions::new(&ours, "orders", 4).join("a").unwrap();
    let mut mine = BTreeMap::new();
    receive(&share, &mut mine, 4);
    let other = Partitions::new(&client(&server.url()), "orders", 4).join("b").unwrap();
    ours.close().unwrap();
    assert!(mine.values().all(|it| it.lost().wait_timeout(LONG) && it.revoked().is_cancelled()));
    assert!(share.partitions().recv_timeout(LONG).is_err(), "no more come");
    assert_eq!(share.leave().unwrap_err().kind(), ErrorKind::Closed);
    let mut its = BTreeMap::new();
    receive(&other, &mut its, 4);
}

#[test]
fn at_rest_there_is_one_thread_and_one_waiter() {
    let server = RedisServer::start().unwrap();
    let builder = Client::builder().url(&server.url()).waiter_timeout(Duration::from_secs(3)).lease(LONG * 4);
    let share = Partitions::new(&builder.renew_every(LONG).connect().unwrap(), "rest", 16).join("a").unwrap();
    let mut mine = BTreeMap::new();
    receive(&share, &mut mine, 16);
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        let names: Vec<_> = tasks.filter_map(name).collect();
        names.iter().filter(|name| name.starts_with("partitions of r") || name.starts_with("rest:")).count()
    };
    wait_until(LONG, "only its keeper is there", || threads() == 1);
    let scripts = || server.command_calls().unwrap().get("evalsha").copied().unwrap_or(0);
    // A heartbeat is due each second; the renewals, after half a minute.
    thread::sleep(Duration::from_secs(1));
    let (before, began) = (scripts(), Instant::now());
    thread::sleep(Duration::from_secs(4));
    let (sent, most) = (scripts() - before, began.elapsed().as_secs() + 2);
    assert!(sent <= most, "{sent} requests, at most {most}");
    drop(mine);
    share.leave().unwrap();
    wait_until(LONG, "no thread is left", || threads() == 0);
}

#[test]
fn in_a_cluster_the_partitions_are_in_many_slots() {
    let cluster = RedisCluster::start(3).unwrap();
    let [a, b] = [(); 2].map(|()| Partitions::new(&client(&cluster.url()), "orders", 12));
    let (first, mut mine) = (a.join("a").unwrap(), BTreeMap::new());
    receive(&first, &mut mine, 12);
    let slots: BTreeSet<_> =
        (0..12).map(|k| cluster.slot_of(&format!("rc:{{orders:partition:{k}}}")).unwrap()).collect();
    assert_eq!(slots.len(), 12);
    let (second, mut its) = (b.join("b").unwrap(), BTreeMap::new());
    give_back(&mut mine, 6);
    receive(&second, &mut its, 6);
    drop(its);
    second.leave().unwrap();
    receive(&first, &mut mine, 12);
}

#[test]
fn after_a_failover_that_forgot_nothing_all_are_owned() {
    let fleet = SentinelFleet::start().unwrap();
    let [a, b] = [(); 2].map(|()| Partitions::new(&client(&fleet.url()), "orders", 6));
    let stop = CancellationToken::new();
    thread::scope(|scope| {
        let shares = [a.join("a").unwrap(), b.join("b").unwrap()];
        let runs = shares.map(|share| {
            let stop = &stop;
            scope.spawn(move || share.run(stop, |partition| while !partition.revoked().wait_timeout(LONG) {}))
        });
        let all_owned = || {
            let owners = a.owners().unwrap_or_default();
            owners.len() == 6 && owners.iter().all(|it| it.member.is_some() && it.held_by.is_some())
        };
        wait_until(LONG, "all are owned", all_owned);
        fleet.failover();
        wait_until(LONG * 2, "all are owned again", all_owned);
        stop.cancel();
        runs.into_iter().for_each(|run| run.join().unwrap().unwrap());
    });
}
