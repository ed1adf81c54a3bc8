//! What cannot work is told at once, about the lock that it is, and nothing is sent or held.

use redis_concurrent::kinds::Permits;
use redis_concurrent::{Client, Error, ErrorKind, Member, MultiLock};
use redis_concurrent_testkit::Proxy;

use crate::multi_lock::fixture::Fixture;
use crate::support::{LONG, ms};

fn every_form(it: &MultiLock) -> Vec<Error> {
    let never = redis_concurrent::CancellationToken::new();
    vec![
        it.lock().unwrap_err(),
        it.try_lock().unwrap_err(),
        it.try_lock_for(LONG).unwrap_err(),
        it.lock_interruptibly(&never).unwrap_err(),
        it.lock_owned().unwrap_err(),
        it.try_lock_owned().unwrap_err(),
        it.with(|_| ()).unwrap_err(),
    ]
}

/// It is `Config` about `name`, says `why`, and nothing is sent.
#[track_caller]
fn refuses(client: &Client, it: &MultiLock, name: &str, why: &str) {
    let before = client.request_count();
    for error in every_form(it) {
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, name), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(client.request_count(), before);
}

#[test]
fn no_locks_at_all() {
    let fixture = Fixture::new();
    refuses(&fixture.client(), &MultiLock::new(&[]), "", "at least one lock");
}

#[test]
fn the_same_lock_twice() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (a, again, b) = (client.reentrant_lock("a"), client.reentrant_lock("a"), client.reentrant_lock("b"));
    refuses(&client, &MultiLock::new(&[&a, &b, &again]), "a", "twice");
    refuses(&client, &MultiLock::new(&[&b, &a, &a.with_lease(LONG)]), "a", "twice");
    // By another client it would wait for itself as well, and so would a writer for its own readers.
    let theirs = fixture.client().reentrant_lock("a");
    refuses(&client, &MultiLock::new(&[&a, &b, &theirs]), "a", "twice");
    let lock = client.read_write_lock("rw");
    refuses(&client, &MultiLock::new(&[lock.read_lock(), &a, lock.write_lock()]), "rw", "twice");
    refuses(&client, &MultiLock::new(&[&a, &client.simple_lock("a")]), "a", "twice");
}

#[test]
fn the_same_lock_by_two_addresses_of_its_server() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = fixture.client();
    let elsewhere = Client::builder().url(&proxy.url()).connect().unwrap();
    let (a, same) = (client.reentrant_lock("a"), elsewhere.reentrant_lock("a"));
    refuses(&client, &MultiLock::new(&[&a, &same]), "a", "twice");
    // What a client that was not connected found out by its first calls is asked when it matters.
    let later = Client::builder().url(&proxy.url()).connect_later().unwrap();
    let both = MultiLock::new(&[&a, &later.reentrant_lock("a")]);
    for error in every_form(&both) {
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "a"), "{error}");
        assert!(error.to_string().contains("twice"), "{error}");
    }
    // Another database has other locks.
    let database = Client::builder().url(&format!("{}1", proxy.url())).connect().unwrap();
    let both = MultiLock::new(&[&a, &database.reentrant_lock("a")]);
    both.try_lock().unwrap().unwrap().unlock().unwrap();
}

/// Which server a proxy leads to is not known if it may not be asked.
#[test]
fn a_lock_that_it_may_have_itself_is_asked_for_after_pauses() {
    let fixture = Fixture::new();
    let mut redis = fixture.server.connection().unwrap();
    let rule = ["SETUSER", "silent", "on", "nopass", "~*", "&*", "+@all", "-info"];
    let () = redis::cmd("ACL").arg(&rule[..]).query(&mut redis).unwrap();
    let client = || {
        Client::builder()
            .url(&fixture.server.url().replace("redis://", "redis://silent:x@"))
            .connect()
            .unwrap()
    };
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let by_proxy = Client::builder().url(&proxy.url().replace("redis://", "redis://silent:x@"));
    let (one, other) = (client(), by_proxy.connect().unwrap());
    let both = MultiLock::new(&[&one.reentrant_lock("a"), &other.reentrant_lock("a")]);
    let before = one.request_count() + other.request_count();
    assert!(both.try_lock_for(ms(1000)).unwrap().is_none());
    let requests = one.request_count() + other.request_count() - before;
    assert!(requests < 200, "{requests} requests in a second");
}

#[test]
fn the_same_name_elsewhere_is_another_lock() {
    let (one, two) = (Fixture::new(), Fixture::new());
    let (here, there) = (one.client(), two.client());
    let spaced = Client::builder().url(&one.server.url()).namespace("other").connect().unwrap();
    let locks = [&here, &there, &spaced].map(|client| client.reentrant_lock("a"));
    let it = MultiLock::new(&[&locks[0], &locks[1], &locks[2]]);
    assert_eq!(it.lock().unwrap().tokens().len(), 3);
}

#[test]
fn a_bad_name_or_lease() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let a = client.reentrant_lock("a");
    refuses(&client, &MultiLock::new(&[&a, &client.reentrant_lock("")]), "", "empty");
    refuses(&client, &MultiLock::new(&[&a, &client.reentrant_lock("b").with_lease(ms(1))]), "b", "lease");
    refuses(&client, &MultiLock::new(&[&a]).with_lease(ms(1)), "a", "lease");
}

/// What one of them says, all forms say; the others were given back.
#[track_caller]
fn fails(fixture: &Fixture, bad: &dyn Member, name: &str, kind: ErrorKind) {
    let (client, other) = (fixture.client(), fixture.client());
    let (a, b) = (client.reentrant_lock("a"), other.reentrant_lock("b"));
    for members in [[&a, &b, bad], [bad, &a, &b], [&a as &dyn Member, bad, &b]] {
        for error in every_form(&MultiLock::new(&members)) {
            assert_eq!((error.kind(), error.name()), (kind, name), "{error}");
            assert!(!a.is_locked().unwrap() && !b.is_locked().unwrap());
        }
    }
}

#[test]
fn a_key_that_is_something_else() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let _: () =
        redis::cmd("SET").arg("rc:{mine}").arg(1).query(&mut fixture.server.connection().unwrap()).unwrap();
    fails(&fixture, &client.reentrant_lock("mine"), "mine", ErrorKind::WrongType);
    // Among others of its client it is asked for by the same request.
    let (a, mine, z) =
        (client.reentrant_lock("a"), client.reentrant_lock("mine"), client.reentrant_lock("z"));
    for error in every_form(&MultiLock::new(&[&a, &mine, &z])) {
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, "mine"), "{error}");
        assert!(!a.is_locked().unwrap() && !z.is_locked().unwrap());
    }
}

#[test]
fn more_permits_than_there_are() {
    let fixture = Fixture::new();
    let client = fixture.client();
    client.semaphore("permits").set_permits(1).unwrap();
    let two = client.lock_with_kind("permits", Permits::of(2).unwrap());
    fails(&fixture, &two, "permits", ErrorKind::Refused);
}

#[test]
fn a_client_that_was_closed() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let lock = client.reentrant_lock("closed");
    client.close().unwrap();
    fails(&fixture, &lock, "closed", ErrorKind::Closed);
}
