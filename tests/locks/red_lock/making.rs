//! What cannot be a RedLock, and says so.

use std::time::Duration;

use redis_concurrent::{Client, ErrorKind, RedLock, RedLockClient};
use redis_concurrent_testkit::{RedisServer, released_all, wait_until};

use crate::red_lock::fixture::{Fixture, LEASE, LONG, NAME, PATIENT, ms};

#[track_caller]
fn refused(clients: impl AsRef<[Client]>, why: &[&str]) {
    let error = RedLockClient::new(clients).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    for text in why {
        assert!(error.to_string().contains(text), "{error}: {text}");
    }
}

#[test]
fn an_even_number_or_fewer_than_three_are_none() {
    let fixture = Fixture::of(4);
    let clients = fixture.clients(|b| b);
    refused([], &["got 0", "odd"]);
    refused(&clients[..1], &["got 1", "none may fail"]);
    refused(&clients[..2], &["got 2", "none may fail"]);
    refused(&clients, &["got 4", "odd", "one server fewer"]);
    assert!(clients.iter().all(|client| client.request_count() == 0), "nobody was asked");
    RedLockClient::new(&clients[..3]).unwrap();
    RedLockClient::new([clients[0].clone(), clients[1].clone(), clients[3].clone()]).unwrap();
}

#[test]
fn two_clients_of_one_server_are_told_by_whatever_address() {
    let fixture = Fixture::of(3);
    let mut clients = fixture.clients(|b| b);
    let port = fixture.servers[0].port();
    for address in [format!("127.0.0.1:{port}/"), format!("localhost:{port}/"), format!("127.0.0.1:{port}/1")]
    {
        clients[2] = Client::connect(&format!("redis://{address}")).unwrap();
        refused(&clients, &["clients 0", "and 2", &port.to_string(), "the same"]);
    }
    clients[2] = clients[1].clone();
    refused(&clients, &["clients 1", "and 2"]);
}

#[test]
fn servers_that_may_not_be_asked_are_known_by_their_addresses() {
    let fixture = Fixture::of(3);
    for server in &fixture.servers {
        let rule = ["SETUSER", "locks", "on", ">secret", "~rc:{*", "&rc:inbox:*", "+@all", "-info"];
        let _: () = redis::cmd("ACL").arg(&rule).query(&mut server.connection().unwrap()).unwrap();
    }
    let connect = |i: usize| {
        let port = fixture.servers[i].port();
        Client::builder()
            .url(&format!("redis://locks:secret@127.0.0.1:{port}/"))
            .lease(LEASE)
            .connect()
            .unwrap()
    };
    refused([connect(0), connect(1), connect(0)], &["clients 0", "and 2"]);
    let red = RedLockClient::new([connect(0), connect(1), connect(2)]).unwrap();
    // How long they have been up is not known either.
    let error = red.lock(NAME).try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("INFO"), "{error}");
    fixture.nothing_stays();
    let lock = red.skip_startup_delay().with_node_timeout(PATIENT).lock(NAME);
    lock.try_lock().unwrap().expect("it is free").unlock().unwrap();
}

#[test]
fn servers_that_are_away_when_it_is_made_are_asked_when_they_are_back() {
    let fixture = Fixture::five();
    fixture.servers[0].kill().unwrap();
    fixture.servers[1].stop().unwrap();
    let connect = |server: &RedisServer| {
        let builder = Client::builder().url(&server.url()).lease(LEASE).connect_timeout(ms(300));
        builder.command_timeout(ms(300)).connect_later().unwrap()
    };
    let mut clients: Vec<_> = fixture.servers.iter().map(connect).collect();
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay().with_node_timeout(PATIENT);
    let lock = red.lock(NAME);
    let guard = lock.lock().unwrap();
    assert_eq!(guard.servers(), 3);
    guard.unlock().unwrap();
    // A server that is away is known by its address.
    clients[4] = connect(&fixture.servers[0]);
    refused(&clients, &["clients 0", "and 4"]);
    fixture.servers[0].restart().unwrap();
    fixture.servers[1].cont().unwrap();
    wait_until(LONG, "all five have it", || lock.lock().unwrap().servers() == 5);
    fixture.nothing_stays();
}

#[test]
fn closed_clients_are_none() {
    let fixture = Fixture::of(3);
    let clients = fixture.clients(|b| b);
    clients[1].close().unwrap();
    assert_eq!(RedLockClient::new(&clients).unwrap_err().kind(), ErrorKind::Closed);
}

/// Every call on a handle that cannot work says so, and nothing is sent.
#[track_caller]
fn never_works(clients: &[Client], lock: &RedLock, why: &str) {
    let before: u64 = clients.iter().map(Client::request_count).sum();
    let errors = [
        lock.lock().map(drop).unwrap_err(),
        lock.try_lock().map(drop).unwrap_err(),
        lock.try_lock_for(ms(10)).map(drop).unwrap_err(),
        lock.lock_owned().map(drop).unwrap_err(),
        lock.with(|_| panic!("ran without the lock")).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(lock.name().starts_with(error.name()), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(clients.iter().map(Client::request_count).sum::<u64>(), before);
}

#[test]
fn bad_names_leases_and_limits_are_told_by_every_call() {
    let fixture = Fixture::of(3);
    let clients = fixture.clients(|b| b);
    let red = RedLockClient::new(&clients).unwrap().skip_startup_delay();
    never_works(&clients, &red.lock(""), "empty");
    never_works(&clients, &red.lock(&"x".repeat(1025)), "1025");
    for lease in [Duration::ZERO, ms(99), Duration::MAX] {
        never_works(&clients, &red.lock(NAME).with_lease(lease), "lease");
    }
    for limit in [Duration::ZERO, LEASE / 2 + ms(1), Duration::MAX] {
        never_works(&clients, &red.with_node_timeout(limit).lock(NAME), "node timeout");
    }
    // It is to fit the lease that is asked for.
    let lock = red.with_node_timeout(ms(200)).lock(NAME);
    // A server that is slow is told in the background: not while requests are counted.
    released_all(&lock.lock().unwrap().unlock());
    fixture.nothing_stays();
    never_works(&clients, &lock.with_lease(ms(300)), "node timeout");
    fixture.nothing_stays();
}
