//! A primary that clients know by a host name, which leads to another server after a failover: as managed services do it.

mod name;

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, wait_until};

use crate::flock::{Flock, promote};
use crate::support::{LONG, builder, exists, ms};
use name::{NAME, Name, where_a_name_is_known};

const FORMER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const NEXT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Nothing is renewed by itself while a test runs: what happens is told, or asked for.
const LEASE: Duration = Duration::from_secs(600);

/// A primary and its replica at two addresses with the same port, as a name can lead to the one or the other.
struct Site {
    flock: Flock,
    former: Proxy,
    _next: Proxy,
}

impl Site {
    /// The name leads to the primary.
    fn start(name: &Name) -> Site {
        let flock = Flock::start(1);
        let ends = [(FORMER, flock.primary.port()), (NEXT, flock.replicas[0].port())];
        let [former, next] = Proxy::start_at_one_port(ends).unwrap();
        name.leads_to(&[FORMER]);
        Site { flock, former, _next: next }
    }

    fn client(&self) -> ClientBuilder {
        let url = format!("redis://{NAME}:{}/", self.former.port());
        builder(&url).lease(LEASE).unreachable_timeout(LEASE).client_name("by-name")
    }

    fn new_primary(&self) -> &RedisServer {
        &self.flock.replicas[0]
    }
}

/// What a request that cannot be served ends with, as soon as that is so.
fn refusal(client: &Client) -> Error {
    eventually(LONG, || client.simple_lock("any").try_lock().err())
}

/// The holder is told what the new primary does not know, keeps what it knows, and its waiter comes in: first the primary
/// dies, then the name is unknown for a moment.
#[test]
fn a_dead_primary_is_followed_to_where_its_name_leads() {
    let test = "dns::a_dead_primary_is_followed_to_where_its_name_leads";
    where_a_name_is_known(test, |name| {
        let site = Site::start(name);
        let (one, other) = (site.client().connect().unwrap(), site.client().connect().unwrap());
        let (lock, waits) = (one.reentrant_lock("it"), other.reentrant_lock("it"));
        let kept = lock.lock_owned().unwrap();
        wait_until(LONG, "the replica has it", || exists(site.new_primary(), "rc:{it}"));
        site.flock.link.black_hole(true);
        let young = one.simple_lock("young").lock_owned().unwrap();
        let (lost, stays) = (young.lost(), kept.lost());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let guard = waits.try_lock_for(3 * LONG).unwrap().expect("its turn");
                let token = guard.token();
                guard.unlock().unwrap();
                token
            });
            wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
            site.flock.primary.kill().unwrap();
            name.leads_to(&[]);
            let error = refusal(&one);
            assert!(error.is_unavailable(), "{error:#}");
            promote(site.new_primary());
            name.leads_to(&[NEXT]);
            wait_until(LONG, "the loss is told", || lost.is_cancelled());
            wait_until(LONG, "it answers", || lock.is_locked().is_ok_and(|held| held));
            assert!(!stays.is_cancelled() && !kept.is_lost());
            let (began, token) = (Instant::now(), kept.token());
            kept.unlock().unwrap();
            assert!(waiter.join().unwrap() > token);
            assert!(began.elapsed() < LONG, "the waiter came in after {:?}", began.elapsed());
        });
        assert!(one.simple_lock("young").try_lock().unwrap().is_some());
    });
}

/// The trap: the former primary lives, as a replica; connections to it stay open, and the name leads there for a while.
#[test]
fn a_former_primary_is_left_when_its_name_leads_elsewhere() {
    let test = "dns::a_former_primary_is_left_when_its_name_leads_elsewhere";
    where_a_name_is_known(test, |name| {
        let site = Site::start(name);
        let (one, other) = (site.client().connect().unwrap(), site.client().connect().unwrap());
        let (lock, waits) = (one.reentrant_lock("it"), other.reentrant_lock("it"));
        let (kept, more) = (lock.lock_owned().unwrap(), one.simple_lock("more").lock_owned().unwrap());
        let lost = kept.lost();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.try_lock_for(3 * LONG).unwrap().expect("its turn").unlock());
            wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
            site.flock.fail_over();
            let error = refusal(&one);
            assert!(error.is_unavailable(), "{error:#}");
            // Nobody has released it yet: that goes on in the background.
            assert!(more.unlock().is_err());
            name.leads_to(&[NEXT]);
            eventually(LONG, || one.simple_lock("any").try_lock_owned().ok());
            assert!(!lost.is_cancelled());
            if let Err(error) = kept.unlock() {
                // It was on its way as the former one was last heard: its reply did not count.
                assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            }
            waiter.join().unwrap().unwrap();
        });
        let left = || -> Vec<String> {
            let mut connection = site.flock.primary.connection().unwrap();
            let all: String = cmd("CLIENT").arg("LIST").query(&mut connection).unwrap();
            all.lines().filter(|it| it.contains("name=by-name")).map(str::to_owned).collect()
        };
        wait_until(LONG, "no connection leads to the former primary", || left().is_empty());
        wait_until(LONG, "more is released", || {
            one.simple_lock("more").try_lock().is_ok_and(|it| it.is_some())
        });
    });
}

/// A name with several addresses leads to the first of them that accepts connections, whatever it is.
#[test]
fn of_several_addresses_the_first_that_accepts_is_used() {
    let test = "dns::of_several_addresses_the_first_that_accepts_is_used";
    where_a_name_is_known(test, |name| {
        let site = Site::start(name);
        name.leads_to(&[NEXT, FORMER]);
        let error = site.client().connect().unwrap_err();
        assert!(format!("{error:#}").contains("is a replica of"), "{error:#}");
        name.leads_to(&[FORMER, NEXT]);
        let client = site.client().connect().unwrap();
        let held = client.simple_lock("it").lock_owned().unwrap();
        wait_until(LONG, "the replica has it", || exists(site.new_primary(), "rc:{it}"));
        site.flock.primary.kill().unwrap();
        site.former.refuse_connections(true).unwrap();
        promote(site.new_primary());
        let other = eventually(LONG, || site.client().connect().ok());
        assert!(other.simple_lock("it").try_lock().unwrap().is_none());
        eventually(LONG, || client.simple_lock("any").try_lock_owned().ok());
        held.unlock().unwrap();
    });
}

/// A caller with a deadline does not wait for a resolver that takes longer.
#[test]
fn a_slow_resolver_keeps_nobody_beyond_a_deadline() {
    const SLOW: Duration = Duration::from_secs(10);
    let test = "dns::a_slow_resolver_keeps_nobody_beyond_a_deadline";
    where_a_name_is_known(test, |name| {
        let site = Site::start(name);
        let client = site.client().connect().unwrap();
        name.leads_slowly_to(SLOW, &[FORMER]);
        site.former.cut_all();
        let began = Instant::now();
        let ended = client.simple_lock("it").lock_owned_with(ms(300));
        assert!(ended.is_err() || ended.is_ok_and(|it| it.is_none()), "nothing leads there");
        assert!(began.elapsed() < SLOW, "it waited for the resolver: {:?}", began.elapsed());
    });
}
