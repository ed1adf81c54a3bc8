//! The test harness itself, on real servers, real sockets and real processes.

mod child;
mod proxy;
mod server;

use std::path::Path;
use std::time::Duration;

use redis::{Commands, Connection, RedisResult, cmd};
use redis_concurrent_testkit::*;

const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(20);

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A connection that waits for a reply as long as a busy machine may take.
fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(LONG)?;
    connection.set_read_timeout(Some(LONG))?;
    Ok(connection)
}

/// A connection that waits for a reply no longer than `SHORT`: for what is not answered.
fn hasty(connection: &mut Connection) -> &mut Connection {
    connection.set_read_timeout(Some(SHORT)).unwrap();
    connection
}

fn ping(connection: &mut Connection) -> RedisResult<String> {
    cmd("PING").query(connection)
}

/// A server with a proxy in front of it and a connection through that.
fn behind_proxy() -> (RedisServer, Proxy, Connection) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let connection = connect(&proxy.url()).unwrap();
    (server, proxy, connection)
}

fn counter(server: &RedisServer) -> Option<u64> {
    server.connection().unwrap().get("n").unwrap()
}

#[test]
fn waiting_ends_with_the_condition() {
    let mut looks = 0;
    wait_until(LONG, "three looks", || {
        looks += 1;
        looks == 3
    });
    assert_eq!(eventually(Duration::ZERO, || Some(7)), 7);
}

#[test]
#[should_panic(expected = "not within 5ms: pigs fly")]
fn waiting_in_vain_says_for_what() {
    wait_until(Duration::from_millis(5), "pigs fly", || false);
}
