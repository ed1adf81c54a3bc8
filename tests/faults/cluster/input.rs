//! What cannot be a cluster, or cannot be done on one.

use redis_concurrent::{Client, ErrorKind, Outcome, RedLock};
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use super::{calm, connect, spread};

#[track_caller]
fn refused(url: &str, why: &str) {
    let error = Client::connect(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    assert!(error.to_string().contains(why), "{error:#}");
}

#[test]
fn nodes_that_are_of_no_cluster_or_of_two_are_refused() {
    refused("redis+cluster://", "names no node");
    let alone = RedisServer::start().unwrap();
    refused(&format!("redis+cluster://127.0.0.1:{}", alone.port()), "not a node of a Redis Cluster");
    refused(&format!("{},127.0.0.1:{}", calm().url(), alone.port()), "not a node of a Redis Cluster");
    let other = RedisCluster::start(1).unwrap();
    refused(
        &format!("{},{}", calm().url(), &other.url()["redis+cluster://".len()..]),
        "different Redis Clusters",
    );
    refused(&format!("{}/1", calm().url()), "database 0 only");
    let unjoined = RedisServer::builder().arg("cluster-enabled", "yes").arg("cluster-port", "0");
    drop(unjoined);
    // Without the cluster's URL, one of several primaries.
    refused(&calm().nodes()[0].url(), "redis+cluster://");
}

#[test]
fn any_node_that_is_up_is_enough() {
    let url = &calm().url()["redis+cluster://".len()..];
    let (down, one) = ("127.0.0.1:1", url.split(',').next_back().unwrap());
    for nodes in [vec![one], vec![down, one], vec![one, down]] {
        let client = Client::builder().cluster(&nodes).connect().unwrap();
        for name in spread(calm(), "seeds") {
            client.simple_lock(&name).lock().unwrap().unlock().unwrap();
        }
    }
    let error = Client::builder().cluster(&[down]).connect().unwrap_err();
    assert!(error.is_unavailable(), "{error:#}");
    // Without asking: the map comes with the first request.
    let client = Client::builder().cluster(&[down, one]).connect_later().unwrap();
    for name in spread(calm(), "later") {
        let lock = client.simple_lock(&name);
        lock.lock().unwrap().unlock().unwrap();
    }
}

#[test]
fn keys_of_several_slots_cannot_be_updated_together() {
    let client = connect(calm());
    let keys = ["stock:1", "stock:2"];
    let error = client.optimistic(&keys).run(|_, _| Ok(Outcome::Commit(()))).unwrap_err();
    assert!(error.is_invalid_input(), "{error:#}");
    let text = error.to_string();
    assert!(keys.iter().all(|key| text.contains(key)) && text.contains("slots"), "{text}");
    client.optimistic(&["{stock}:1", "{stock}:2"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
}

#[test]
fn a_red_lock_over_clusters_is_refused() {
    let clients = [connect(calm()), connect(calm()), connect(calm())];
    let error = RedLock::new(&clients).unwrap_err();
    assert!(error.is_invalid_input() && error.to_string().contains("not independent"), "{error:#}");
}
