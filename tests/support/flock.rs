//! A primary with replicas.

use redis::cmd;
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::support::{LONG, content};

pub struct Flock {
    pub primary: RedisServer,
    pub replicas: Vec<RedisServer>,
    /// Between the primary and its replicas.
    pub link: Proxy,
}

impl Flock {
    /// Starts a primary with this many replicas, and returns once they are in sync.
    pub fn start(replicas: usize) -> Flock {
        let primary = RedisServer::builder().arg("repl-diskless-sync-delay", "0").start().unwrap();
        let replicas: Vec<_> = (0..replicas).map(|_| RedisServer::start().unwrap()).collect();
        let link = Proxy::start(primary.port()).unwrap();
        for replica in &replicas {
            follow(replica, link.port());
        }
        for replica in &replicas {
            wait_until(LONG, "the replica is in step", || info(replica).contains("master_link_status:up\r"));
        }
        let n = replicas.len();
        wait_until(LONG, "all replicas answer", || {
            let mut connection = primary.connection().unwrap();
            cmd("SET").arg("step").arg(1).exec(&mut connection).unwrap();
            let had: usize = cmd("WAIT").arg(n).arg(1000).query(&mut connection).unwrap();
            had == n
        });
        Flock { primary, replicas, link }
    }
}

impl Flock {
    /// Returns whether the replicas have the same content in this key as the primary.
    pub fn is_everywhere(&self, key: &str) -> bool {
        let has = |server: &RedisServer| content(&mut server.connection().unwrap(), key);
        let here = has(&self.primary).expect("the primary has it");
        self.replicas.iter().all(|replica| has(replica).as_ref() == Some(&here))
    }

    /// Waits until the replicas have acknowledged to the primary, as they do each second, everything that it
    /// has written so far.
    pub fn are_in_step(&self) {
        let offset = |line: &str, key: &str| {
            let rest = &line[line.find(key)? + key.len()..];
            rest.split([',', '\r']).next()?.parse::<u64>().ok()
        };
        let written = info(&self.primary).lines().find_map(|line| offset(line, "master_repl_offset:"));
        wait_until(LONG, "the replicas have told", || {
            let info = info(&self.primary);
            let offsets =
                info.lines().filter(|line| line.starts_with("slave")).filter_map(|l| offset(l, "offset="));
            offsets.filter(|offset| Some(*offset) >= written).count() == self.replicas.len()
        });
    }
}

impl Flock {
    /// Does a planned failover: the first replica becomes the primary, and the primary its replica. Nobody
    /// closes a connection.
    pub fn fail_over(&self) {
        let new = &self.replicas[0];
        let mut connection = self.primary.connection().unwrap();
        cmd("FAILOVER").arg("TO").arg("127.0.0.1").arg(new.port()).exec(&mut connection).unwrap();
        wait_until(LONG, "the replica is the primary", || info(new).contains("role:master\r"));
        wait_until(LONG, "the primary is its replica", || {
            info(&self.primary).contains("role:slave\r")
                && info(&self.primary).contains("master_link_status:up\r")
        });
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        for replica in &self.replicas {
            // A stopped replica would not end.
            let _ = replica.cont();
        }
    }
}

pub fn info(server: &RedisServer) -> String {
    cmd("INFO").arg("replication").query(&mut server.connection().unwrap()).unwrap()
}

pub fn follow(replica: &RedisServer, port: u16) {
    let mut connection = replica.connection().unwrap();
    cmd("REPLICAOF").arg("127.0.0.1").arg(port).exec(&mut connection).unwrap();
}

/// Makes a replica a primary.
pub fn promote(replica: &RedisServer) {
    cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica.connection().unwrap()).unwrap();
}
