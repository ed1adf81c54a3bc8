//! Three primaries with a replica each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::cmd;
use redis_concurrent_testkit::{ClientKind, RedisCluster, RedisServer, wait_until};

use super::{FIRST, LAG, LINGERS, Strike, Topology, info, is_primary};
use crate::support::{LONG, Random, ms};

const SHARDS: usize = 3;

/// Of the locks.
const KEYS: [&str; 5] = ["rc:{a}", "rc:{rw}", "rc:{q}", "rc:{b}", "rc:{s}"];

/// For how long a slot stands still halfway: less than a third of a lease.
const HALFWAY: Duration = ms(700);

pub struct Cluster {
    cluster: RedisCluster,
    /// Nodes can be cut off with clients: everything goes through proxies then, which take time, so nothing else happens.
    parts: bool,
    /// Which of the locks is next.
    turn: AtomicUsize,
    /// Which of the shards is rolled next.
    rolled: AtomicUsize,
    /// What was killed, stopped, or replaced to be restarted.
    struck: Mutex<Option<Arc<RedisServer>>>,
    /// What was added.
    added: Mutex<Option<Arc<RedisServer>>>,
}

impl Cluster {
    pub fn start(parts: bool) -> Self {
        let cluster = RedisCluster::builder().primaries(SHARDS).replicas(1).full_coverage(false);
        let cluster = cluster.node_timeout(Duration::from_secs(2));
        let cluster = if parts { cluster.behind_proxies() } else { cluster };
        Cluster {
            cluster: cluster.start().unwrap(),
            parts,
            turn: AtomicUsize::new(0),
            rolled: AtomicUsize::new(0),
            struck: Mutex::default(),
            added: Mutex::default(),
        }
    }

    /// The key of another lock each time.
    fn key(&self) -> &'static str {
        KEYS[self.turn.fetch_add(1, Ordering::Relaxed) % KEYS.len()]
    }

    fn primary_of(&self, key: &str) -> Arc<RedisServer> {
        self.cluster.primary_of(key).unwrap().expect("the slot has a primary")
    }

    /// The primary and the replica whose turn it is to be rolled. They stay together, whatever happens.
    fn shard(&self) -> (Arc<RedisServer>, Arc<RedisServer>) {
        let (nodes, i) = (self.cluster.nodes(), self.rolled.load(Ordering::Relaxed) % SHARDS);
        let (one, other) = (nodes[i].clone(), nodes[SHARDS + i].clone());
        if is_primary(&one) { (one, other) } else { (other, one) }
    }

    /// Each primary has its replica, and that is in step.
    fn wait_until_in_step(&self) {
        self.cluster.wait_until_ready().unwrap();
        wait_until(3 * LONG, "all nodes are in step", || {
            thread::sleep(ms(100));
            let primaries = self.cluster.primaries().unwrap_or_default();
            primaries.iter().filter(|it| info(it).contains("state=online")).count() == SHARDS
        });
    }

    fn move_slot(&self, key: &str) {
        let (from, primaries) = (self.primary_of(key), self.cluster.primaries().unwrap());
        let to = primaries.iter().find(|it| it.port() != from.port()).expect("there are three");
        let slot = self.cluster.slot_of(key).unwrap();
        self.cluster.begin_move(slot, to).unwrap();
        thread::sleep(HALFWAY);
        self.cluster.finish_move(slot, to).unwrap();
    }

    /// Either the node that was added gets the slots, or it is removed.
    fn resize(&self) {
        let mut added = self.added.lock();
        let Some(node) = added.take_if(|it| self.primary_of(KEYS[0]).port() == it.port()) else {
            let node = added.as_ref().expect("it was prepared");
            for key in KEYS {
                self.cluster.move_slot(self.cluster.slot_of(key).unwrap(), node).unwrap();
            }
            return;
        };
        let primaries = self.cluster.primaries().unwrap();
        let heirs: Vec<_> = primaries.iter().filter(|it| it.port() != node.port()).collect();
        let heir = heirs[self.turn.fetch_add(1, Ordering::Relaxed) % heirs.len()];
        self.cluster.remove(&node, heir).unwrap();
    }
}

impl Topology for Cluster {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn url_of(&self, process: u64) -> String {
        if self.parts && process == FIRST { self.cluster.url_apart() } else { self.url() }
    }

    fn strikes(&self) -> Vec<Strike> {
        use Strike::{Behind, Command, Freeze, Kill, Minority, Move, Resize, Roll};
        if self.parts {
            return vec![Minority];
        }
        vec![Kill, Behind, Freeze, Command, Move, Resize, Roll]
    }

    fn times(&self, strike: Strike) -> usize {
        match strike {
            Strike::Roll => SHARDS,
            Strike::Resize => 2,
            _ => 1,
        }
    }

    fn prepare(&self, strike: Strike) {
        if strike == Strike::Roll {
            self.shard().1.restart().unwrap();
            self.wait_until_in_step();
        }
        let mut added = self.added.lock();
        if strike == Strike::Resize && added.is_none() {
            *added = Some(self.cluster.add_primary().unwrap());
        }
    }

    fn strike(&self, strike: Strike) {
        let key = self.key();
        let former = self.primary_of(key);
        let mut struck = self.struck.lock();
        match strike {
            Strike::Move => self.move_slot(key),
            Strike::Resize => self.resize(),
            Strike::Kill | Strike::Behind | Strike::Freeze => {
                let replica = self.cluster.replicas_of(&former).unwrap().remove(0);
                match strike {
                    Strike::Freeze => former.stop().unwrap(),
                    Strike::Kill => former.kill().unwrap(),
                    _ => {
                        // With a password that is wrong it does not find back.
                        set_password(&replica, "wrong");
                        former.kill_clients(ClientKind::Replica).unwrap();
                        thread::sleep(LAG);
                        former.kill().unwrap();
                        set_password(&replica, "");
                    }
                }
                wait_until(3 * LONG, "its replica takes its place", || is_primary(&replica));
                *struck = Some(former);
            }
            Strike::Command => {
                let replica = self.cluster.replicas_of(&former).unwrap().remove(0);
                self.cluster.fail_over_to(&replica).unwrap();
            }
            Strike::Roll => {
                let (former, replica) = self.shard();
                self.rolled.fetch_add(1, Ordering::Relaxed);
                self.cluster.fail_over_to(&replica).unwrap();
                *struck = Some(former);
            }
            Strike::Minority => {
                let replica = self.cluster.replicas_of(&former).unwrap().remove(0);
                self.cluster.part(&former);
                wait_until(3 * LONG, "its replica takes its place", || is_primary(&replica));
                thread::sleep(LINGERS);
                self.cluster.heal().unwrap();
            }
            Strike::Partition | Strike::Isolate | Strike::Refused => unreachable!("it is not in the deck"),
        }
    }

    fn mend(&self, strike: Strike, random: &mut Random) {
        thread::sleep(random.micros(1_500_000));
        let struck = self.struck.lock().take();
        if let Some(struck) = struck {
            match strike {
                Strike::Freeze => struck.cont().unwrap(),
                Strike::Kill | Strike::Behind => struck.restart().unwrap(),
                _ => {
                    // An operator waits until it is the replica.
                    self.wait_until_in_step();
                    struck.restart().unwrap();
                }
            }
        }
        self.wait_until_in_step();
    }
}

/// The one by which a replica logs in at its primary.
fn set_password(replica: &RedisServer, password: &str) {
    let mut set = cmd("CONFIG");
    set.arg("SET").arg("masterauth").arg(password).exec(&mut replica.connection().unwrap()).unwrap();
}
