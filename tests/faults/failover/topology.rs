//! Servers of which one takes the place of another, and what makes them do so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent_testkit::{RedisCluster, RedisServer, SentinelFleet, wait_until};

use crate::support::{LONG, Random, ms};

/// Why another server becomes the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// SIGKILL; it comes back, empty, as a replica.
    Kill,
    /// SIGSTOP, and SIGCONT some time after another has taken its place.
    Freeze,
    /// On command, while it lives.
    Command,
    /// Nobody reaches it, until another has taken its place.
    Partition,
    /// The slot of one of the locks goes to another primary.
    Move,
}

pub trait Topology: Sync {
    /// What its clients connect to.
    fn url(&self) -> String;
    /// What can happen to it.
    fn strikes(&self) -> Vec<Strike>;
    /// Lets it happen; returns when another server is the primary.
    fn strike(&self, strike: Strike);
    /// Undoes it; returns when all servers are in step again.
    fn mend(&self, strike: Strike, random: &mut Random);
}

/// The one of this name.
pub fn named(kind: &str) -> Box<dyn Topology> {
    match kind {
        "sentinel" => Box::new(Sentinels(SentinelFleet::builder().behind_proxies().start().unwrap())),
        "cluster" => Box::new(Cluster::start()),
        other => panic!("KIND={other}: there are sentinel and cluster"),
    }
}

struct Sentinels(SentinelFleet);

impl Sentinels {
    fn former(&self) -> usize {
        self.0.primary().expect("the sentinels name a primary")
    }
}

impl Topology for Sentinels {
    fn url(&self) -> String {
        self.0.url()
    }

    fn strikes(&self) -> Vec<Strike> {
        vec![Strike::Kill, Strike::Freeze, Strike::Command, Strike::Partition]
    }

    fn strike(&self, strike: Strike) {
        let former = self.former();
        match strike {
            Strike::Kill => self.0.servers()[former].kill().unwrap(),
            Strike::Freeze => self.0.servers()[former].stop().unwrap(),
            Strike::Command => self.0.failover(),
            Strike::Partition => self.0.proxy(former).black_hole(true),
            Strike::Move => unreachable!("there are no slots"),
        }
        self.0.primary_after(former);
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        thread::sleep(random.micros(1_500_000));
        for (i, server) in self.0.servers().iter().enumerate() {
            match strike {
                Strike::Kill if server.pid().is_none() => server.restart().unwrap(),
                // It has no effect on those that run.
                Strike::Freeze => server.cont().unwrap(),
                Strike::Partition => self.0.proxy(i).heal().unwrap(),
                _ => {}
            }
        }
        wait_until(3 * LONG, "all servers are in step", || {
            thread::sleep(ms(100));
            self.0.is_whole()
        });
    }
}

/// Three primaries with a replica each.
struct Cluster {
    cluster: RedisCluster,
    /// Which of the locks is next.
    turn: AtomicUsize,
    /// What was killed or stopped.
    struck: Mutex<Option<Arc<RedisServer>>>,
}

impl Cluster {
    fn start() -> Self {
        let cluster = RedisCluster::builder().primaries(3).replicas(1).full_coverage(false);
        let cluster = cluster.node_timeout(Duration::from_secs(2)).start().unwrap();
        Cluster { cluster, turn: AtomicUsize::new(0), struck: Mutex::default() }
    }

    /// The key of another lock each time.
    fn key(&self) -> &'static str {
        const KEYS: [&str; 5] = ["rc:{a}", "rc:{rw}", "rc:{q}", "rc:{b}", "rc:{s}"];
        KEYS[self.turn.fetch_add(1, Ordering::Relaxed) % KEYS.len()]
    }
}

impl Topology for Cluster {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn strikes(&self) -> Vec<Strike> {
        vec![Strike::Kill, Strike::Freeze, Strike::Command, Strike::Move]
    }

    fn strike(&self, strike: Strike) {
        let key = self.key();
        let former = self.cluster.primary_of(key).unwrap().expect("the slot has a primary");
        if strike == Strike::Move {
            let others = self.cluster.primaries().unwrap();
            let to = others.iter().find(|it| it.port() != former.port()).expect("there are three");
            return self.cluster.move_slot(self.cluster.slot_of(key).unwrap(), to).unwrap();
        }
        let replica = self.cluster.replicas_of(&former).unwrap().remove(0);
        match strike {
            Strike::Kill => former.kill().unwrap(),
            Strike::Freeze => former.stop().unwrap(),
            _ => return self.cluster.fail_over_to(&replica).unwrap(),
        }
        wait_until(3 * LONG, "its replica takes its place", || info(&replica).contains("role:master"));
        *self.struck.lock() = Some(former);
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        thread::sleep(random.micros(1_500_000));
        if let Some(struck) = self.struck.lock().take() {
            match strike {
                Strike::Kill => struck.restart().unwrap(),
                _ => struck.cont().unwrap(),
            }
        }
        self.cluster.wait_until_ready().unwrap();
        // Each primary has its replica, and that is in step.
        wait_until(3 * LONG, "all nodes are in step", || {
            thread::sleep(ms(100));
            self.cluster
                .primaries()
                .is_ok_and(|all| all.len() == 3 && all.iter().all(|it| info(it).contains("state=online")))
        });
    }
}

/// What it says of replication; nothing if it does not answer.
fn info(server: &RedisServer) -> String {
    let told = server.connection().and_then(|mut it| redis::cmd("INFO").arg("replication").query(&mut it));
    told.unwrap_or_default()
}
