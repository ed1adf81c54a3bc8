//! What cannot be a cluster, or cannot be done on one, and what could be mistaken for it. By name:
//!
//! | the input | what becomes of it |
//! | --- | --- |
//! | a URL with no node | [`a_url_with_no_node`]: refused |
//! | a node that is not of the cluster | [`a_node_that_is_not_of_the_cluster`]: refused; it never gets a lock |
//! | nodes whose map names no host | [`nodes_that_do_not_name_their_hosts`]: found all the same |
//! | two clusters in one URL | [`two_clusters_in_one_url`]: refused |
//! | a sentinel that knows no such primary | `sentinel::lies::a_primary_that_no_sentinel_knows`: refused |
//! | a name with a hash tag of its own | [`a_name_with_a_hash_tag_of_its_own`]: escaped, a lock like others |
//! | a user's key with a hash tag | `kinds::a_users_key_keeps_its_slot` |
//! | a multi-lock over names of different slots | `kinds::a_multi_lock_takes_locks_of_several_slots_and_gives_them_all_back` |
//! | an optimistic update over keys of several slots | [`an_optimistic_update_over_keys_of_several_slots`]: refused |
//! | a script that the other nodes do not have | [`a_script_that_is_not_in_the_other_nodes`]: sent there in full |
//! | a database other than 0, a primary of several without the cluster's URL, a red lock over clusters | refused |

use redis_concurrent::optimistic::Outcome;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, Error, ErrorKind, Member, MultiLock, RedLockClient};
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use super::{calm, connect, spread};
use crate::server_days::ask;
use crate::support::{LONG, queued};

/// What is done by a script.
type Call<'a> = &'a dyn Fn() -> Result<(), Error>;

/// The password in these URLs, which no error may tell.
const SECRET: &str = "hush";

/// The hosts and ports of all nodes.
fn nodes(cluster: &RedisCluster) -> String {
    cluster.url()["redis+cluster://".len()..].to_owned()
}

/// Gives the server the user of these URLs.
fn has_user(server: &RedisServer) {
    ask::<()>(server, &["ACL", "SETUSER", "app", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
}

#[track_caller]
fn is_refused(error: &Error, why: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:#}");
    assert!(why.iter().all(|it| error.to_string().contains(it)), "{error:#}");
    assert!(!format!("{error:#} {error:?}").contains(SECRET), "{error:?}");
}

/// As soon as a client connects to these nodes.
#[track_caller]
fn refused(nodes: &str, why: &[&str]) {
    let url = format!("redis+cluster://app:{SECRET}@{nodes}");
    is_refused(&Client::connect(&url).map(drop).unwrap_err(), why);
}

#[test]
fn a_url_with_no_node() {
    let why = ["names no node", "redis+cluster://host:port,host:port"];
    for nodes in ["", "/", "/0", ",", "?protocol=resp3", "127.0.0.1:1,", "127.0.0.1:1,,127.0.0.1:2"] {
        refused(nodes, &why);
        is_refused(&Client::connect(&format!("redis+cluster://{nodes}")).map(drop).unwrap_err(), &why);
    }
}

#[test]
fn a_node_that_is_not_of_the_cluster() {
    let alone = RedisServer::start().unwrap();
    has_user(&alone);
    calm().nodes().iter().for_each(|node| has_user(node));
    let (wrong, right) = (format!("127.0.0.1:{}", alone.port()), nodes(calm()));
    let why = [&*wrong, "is not a node of a Redis Cluster"];
    for nodes in [wrong.clone(), format!("{right},{wrong}"), format!("{wrong},{right}")] {
        refused(&nodes, &why);
    }
    // Without asking at first: a lock is where the cluster has it, or it is refused by name.
    let later = |nodes: &str| {
        let url = format!("redis+cluster://app:{SECRET}@{nodes}");
        Client::builder().url(&url).command_timeout(LONG).connect_later().unwrap()
    };
    for name in spread(calm(), "stranger") {
        for nodes in [format!("{wrong},{right}"), format!("{right},{wrong}")] {
            later(&nodes).simple_lock(&name).lock().unwrap().unlock().unwrap();
        }
    }
    let named = [&["\"stranger\""], &why[..]].concat();
    for nodes in [wrong.clone(), format!("{wrong},127.0.0.1:1"), format!("127.0.0.1:1,{wrong}")] {
        let client = later(&nodes);
        let both = [client.simple_lock("stranger"), client.simple_lock("stranger too")];
        is_refused(&both[0].try_lock().map(drop).unwrap_err(), &named);
        is_refused(&both[0].lock().map(drop).unwrap_err(), &named);
        let error = MultiLock::new(&[&both[0], &both[1]]).lock().map(drop).unwrap_err();
        is_refused(&error, &why);
        is_refused(&client.semaphore("stranger").permits().map(drop).unwrap_err(), &named);
    }
    assert!(alone.keys().unwrap().is_empty(), "{:?}", alone.keys());
}

/// They announce no hostname (`?`), or nothing at all.
#[test]
fn nodes_that_do_not_name_their_hosts() {
    for how in ["hostname", "unknown-endpoint"] {
        let cluster =
            RedisCluster::builder().primaries(2).arg("cluster-preferred-endpoint-type", how).start().unwrap();
        for protocol in ["", "?protocol=resp3"] {
            let client = Client::connect(&format!("{}{protocol}", cluster.url())).unwrap();
            for name in spread(&cluster, "anonymous") {
                client.simple_lock(&name).lock().unwrap().unlock().unwrap();
            }
        }
    }
}

#[test]
fn two_clusters_in_one_url() {
    let other = RedisCluster::start(1).unwrap();
    calm().nodes().iter().chain(&other.nodes()).for_each(|node| has_user(node));
    let (one, other) = (nodes(calm()), nodes(&other));
    let first = |nodes: &str| nodes.split(',').next().unwrap().to_owned();
    for (one, other) in [(&one, &other), (&other, &one)] {
        refused(&format!("{one},{other}"), &["different Redis Clusters", &first(one), &first(other)]);
    }
}

#[test]
fn what_a_cluster_does_not_have() {
    calm().nodes().iter().for_each(|node| has_user(node));
    refused(&format!("{}/1", nodes(calm())), &["database 0 only"]);
    // Without the cluster's URL, one of several primaries.
    let one = calm().nodes().remove(0).url();
    is_refused(&Client::connect(&one).map(drop).unwrap_err(), &["redis+cluster://", "3 primaries"]);
    let error = RedLockClient::new([(); 3].map(|()| connect(calm()))).map(drop).unwrap_err();
    is_refused(&error, &["not independent"]);
}

#[test]
fn a_name_with_a_hash_tag_of_its_own() {
    let (one, two) = (connect(calm()), connect(calm()));
    for name in ["{a}", "a{b}c", "}{", "a}", "{}", "{{a}}", "{a}{b}:\u{1F600}"] {
        let (lock, other) = (one.reentrant_lock(name), two.reentrant_lock(name));
        let guard = lock.lock().unwrap();
        assert!(other.try_lock().unwrap().is_none(), "{name}");
        // It is the lock of no other name.
        for like in ["a", "b", "a{b}", "{a"] {
            assert!(two.reentrant_lock(like).try_lock().unwrap().is_some(), "{name} {like}");
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| other.try_lock_for(LONG).unwrap().expect("it is told").unlock());
            queued(&lock, 1);
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}

#[test]
fn an_optimistic_update_over_keys_of_several_slots() {
    let client = connect(calm());
    let keys = ["stock:1", "stock:2"];
    let error = client.optimistic(&keys).run(|_, _| Ok(Outcome::Commit(()))).unwrap_err();
    is_refused(&error, &["stock:1", "stock:2", "different slots", "hash tag"]);
    client.optimistic(&["{stock}:1", "{stock}:2"]).run(|_, _| Ok(Outcome::Commit(()))).unwrap();
}

/// Each time as on a node that came a moment ago: `EVALSHA` fails there, and `EVAL` follows.
#[test]
fn a_script_that_is_not_in_the_other_nodes() {
    // The scripts of other tests are left alone.
    let cluster = RedisCluster::start(3).unwrap();
    let client = connect(&cluster);
    let forget = || cluster.nodes().iter().for_each(|node| ask::<()>(node, &["SCRIPT", "FLUSH"]));
    for name in spread(&cluster, "scripts") {
        let called = |suffix: &str| format!("{name} {suffix}");
        let locks = [client.simple_lock(&called("one")), client.simple_lock(&called("two"))];
        let (limiter, fenced) = (
            client.rate_limiter(&called("rate"), Rate::fixed_window(9, LONG)),
            client.fenced(&called("value")),
        );
        let script = fenced.script("return redis.call('GET', KEYS[1])");
        let own = format!("{{{}}}:own", called("value"));
        let calls: [(&str, Call<'_>); 9] = [
            ("simple lock", &|| locks[0].lock()?.unlock()),
            ("read lock", &|| client.read_write_lock(&called("rw")).read_lock().lock()?.unlock()),
            ("semaphore", &|| client.semaphore(&called("permits")).set_permits(1)),
            ("latch", &|| client.count_down_latch(&called("latch")).try_set_count(1).map(drop)),
            ("inventory", &|| client.inventory(&called("goods")).add_stock("sku", 1).map(drop)),
            ("rate limiter", &|| limiter.try_acquire(1).map(drop)),
            ("fenced value", &|| fenced.set(1, "value")),
            ("script of a user", &|| script.run::<Option<u32>>(2, &[&own], None::<&str>).map(drop)),
            ("multi-lock", &|| MultiLock::new(&[&locks[0], &locks[1] as &dyn Member]).lock()?.unlock()),
        ];
        for (what, call) in calls {
            forget();
            call().unwrap_or_else(|error| panic!("{what}: {error:#}"));
        }
        let (lock, other) = (client.reentrant_lock(&name), connect(&cluster).reentrant_lock(&name));
        forget();
        let guard = lock.lock().unwrap();
        std::thread::scope(|scope| {
            forget();
            let waiting = scope.spawn(|| other.try_lock_for(LONG).unwrap().expect("it is told").unlock());
            queued(&lock, 1);
            forget();
            guard.renew_for(LONG).unwrap();
            forget();
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}

#[test]
fn any_node_that_is_up_is_enough() {
    let url = nodes(calm());
    let of = |nodes: &[&str]| Client::builder().url(&format!("redis+cluster://{}", nodes.join(",")));
    let (down, one) = ("127.0.0.1:1", url.rsplit([',', '/']).next().unwrap());
    for nodes in [&[one][..], &[down, one], &[one, down]] {
        let client = of(nodes).connect().unwrap();
        for name in spread(calm(), "seeds") {
            client.simple_lock(&name).lock().unwrap().unlock().unwrap();
        }
    }
    let error = of(&[down]).connect().unwrap_err();
    assert!(error.is_unavailable(), "{error:#}");
    // Without asking: the map comes with the first request, also of several locks.
    let client = of(&[down, one]).connect_later().unwrap();
    let locks: Vec<_> = spread(calm(), "later").iter().map(|name| client.simple_lock(name)).collect();
    let members: Vec<_> = locks.iter().map(|lock| lock as &dyn Member).collect();
    MultiLock::new(&members).lock().unwrap().unlock().unwrap();
    let client = of(&[down]).connect_later().unwrap();
    let error = client.simple_lock("nowhere").try_lock().map(drop).unwrap_err();
    assert!(error.is_unavailable() && format!("{error:#}").contains("refused"), "{error:#}");
}
