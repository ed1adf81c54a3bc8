//! What it costs: requests, and that no more is asked than is needed.

use redis_concurrent::{Client, Member, MultiLock};

use crate::multi_lock::fixture::{Fixture, multi};
use crate::support::LONG;

fn names() -> Vec<String> {
    (0..10).map(|i| format!("name-{i}")).collect()
}

/// So that the scripts are known, and connections made.
fn warm(it: &MultiLock) {
    it.lock().unwrap().unlock().unwrap();
    it.lock().unwrap().unlock().unwrap();
}

fn requests(clients: &[Client]) -> u64 {
    clients.iter().map(Client::request_count).sum()
}

#[test]
fn ten_names_of_one_client_are_two_requests() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let names = names();
    let it = multi(&client, &names.iter().map(String::as_str).collect::<Vec<_>>());
    warm(&it);
    let before = client.request_count();
    let guard = it.lock().unwrap();
    assert_eq!(client.request_count() - before, 1);
    guard.unlock().unwrap();
    assert_eq!(client.request_count() - before, 2);
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn ten_names_of_ten_clients_are_twenty_requests() {
    let fixture = Fixture::new();
    let clients: Vec<_> = (0..10).map(|_| fixture.client()).collect();
    let locks: Vec<_> =
        clients.iter().zip(names()).map(|(client, name)| client.reentrant_lock(&name)).collect();
    let members: Vec<&dyn Member> = locks.iter().map(|lock| lock as &dyn Member).collect();
    let it = MultiLock::new(&members);
    warm(&it);
    let before = requests(&clients);
    let guard = it.lock().unwrap();
    assert_eq!(requests(&clients) - before, 10);
    guard.unlock().unwrap();
    assert_eq!(requests(&clients) - before, 20);
    drop((members, it));
    drop(locks);
    fixture.end(&clients.iter().collect::<Vec<_>>());
}

#[test]
fn one_that_is_busy_costs_one_request_and_nothing_to_give_back() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &["a", "b", "c"]);
    warm(&it);
    let b = there.reentrant_lock("b");
    let busy = b.lock().unwrap();
    let before = here.request_count();
    assert!(it.try_lock().unwrap().is_none());
    assert_eq!(here.request_count() - before, 1);
    drop(busy);
    // Of a thread of its own process it knows without a request.
    let local = here.reentrant_lock("c");
    let _held = local.lock_owned().unwrap();
    let before = here.request_count();
    assert!(it.try_lock_owned().unwrap().is_none());
    assert_eq!(here.request_count() - before, 0);
}

#[test]
fn a_re_entry_of_all_costs_nothing() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let it = multi(&client, &["a", "b", "c"]);
    let outer = it.lock().unwrap();
    let before = client.request_count();
    let inner = it.try_lock_for(LONG).unwrap().unwrap();
    inner.unlock().unwrap();
    assert_eq!(client.request_count() - before, 0);
    drop(outer);
    drop(it);
    fixture.end(&[&client]);
}
