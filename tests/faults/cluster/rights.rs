//! What a user needs on a cluster, beside what it needs on one server.

use std::thread;

use redis::cmd;
use redis_concurrent::Client;

use super::{calm, has_shards, spread};
use crate::support::{LONG, queued};

#[test]
fn those_of_the_page() {
    let (_, rights) =
        include_str!("../../../docs/operations.md").split_once("redis-cli ACL SETUSER locks ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let rights: Vec<_> = rights.split_whitespace().map(|it| it.trim_matches('\'')).collect();
    let rights: Vec<_> = rights.into_iter().filter(|it| *it != "\\").collect();
    for node in calm().nodes() {
        let mut admin = node.connection().unwrap();
        let mut user = |name: &str, more: &[&str]| {
            cmd("ACL").arg("SETUSER").arg(name).arg("reset").arg(&rights).arg(more).exec(&mut admin).unwrap();
        };
        let mut more = vec!["+cluster|slots", "&rc:{*"];
        if has_shards(&node) {
            more.extend(["+ssubscribe", "+sunsubscribe", "+spublish", "+pubsub|shardnumsub"]);
        }
        user("locks", &more);
        user("less", &[]);
    }
    let url = |user: &str| calm().url().replace("://", &format!("://{user}:secret@"));
    let (holder, waiter) = (Client::connect(&url("locks")).unwrap(), Client::connect(&url("locks")).unwrap());
    for name in spread(calm(), "rights") {
        let lock = holder.reentrant_lock(&name);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                waiter.reentrant_lock(&name).try_lock_for(LONG).unwrap().unwrap().unlock().unwrap()
            });
            queued(&lock, 1);
            guard.unlock().unwrap();
        });
    }
    let error = Client::connect(&url("less")).unwrap_err();
    assert!(error.is_unavailable() && format!("{error:#}").contains("cluster"), "{error:#}");
}
