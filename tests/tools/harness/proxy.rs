//! The proxy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::{Commands, RedisResult};
use redis_concurrent_testkit::*;

use super::{LONG, SHORT, behind_proxy, connect, counter, hasty, ping};

#[test]
fn a_proxy_passes_everything_and_counts() {
    let (server, proxy, mut connection) = behind_proxy();
    let before = proxy.request_count();
    let big = "x".repeat(3 * 1024 * 1024);
    let _: () = connection.set("big", &big).unwrap();
    assert_eq!(connection.get::<_, String>("big").unwrap(), big);
    assert!(proxy.request_count() > before);
    assert_eq!(proxy.connections(), 1);
    assert_eq!(proxy.struck(), 0);
    assert_eq!(server.keys().unwrap(), ["big"]);
    drop(connection);
    wait_until(LONG, "the server sees the client go", || {
        server.clients(ClientKind::Normal).unwrap().is_empty()
    });
}

#[test]
fn swallowed_replies_are_lost_and_the_connection_goes_on() {
    let (server, proxy, _) = behind_proxy();
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    raw.set_read_timeout(Some(SHORT)).unwrap();
    let mut reply = [0; 64];
    proxy.swallow_replies(2);
    for n in 1..=2 {
        raw.write_all(b"INCR n\r\n").unwrap();
        assert!(raw.read(&mut reply).is_err());
        // The read may have ended before the reply came.
        wait_until(LONG, "the reply is lost", || proxy.struck() == n);
        assert_eq!(counter(&server), Some(n));
    }
    raw.set_read_timeout(Some(LONG)).unwrap();
    raw.write_all(b"INCR n\r\n").unwrap();
    let size = raw.read(&mut reply).unwrap();
    assert_eq!(&reply[..size], b":3\r\n");
    assert_eq!(proxy.struck(), 2);
}

#[test]
fn a_silent_connection_says_nothing_any_more() {
    let (server, proxy, _) = behind_proxy();
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    raw.set_read_timeout(Some(SHORT)).unwrap();
    proxy.silence(1);
    raw.write_all(b"INCR n\r\n").unwrap();
    wait_until(LONG, "the reply is lost", || proxy.struck() == 1);
    raw.write_all(b"INCR n\r\n").unwrap();
    wait_until(LONG, "the second is executed", || counter(&server) == Some(2));
    assert!(raw.read(&mut [0; 64]).is_err());
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_swallowed_reply_with_reset_was_executed() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.swallow_next_reply_and_reset();
    let error = connection.incr::<_, _, u64>("n", 1).unwrap_err();
    assert!(error.is_connection_dropped() && !error.is_timeout(), "{error}");
    assert_eq!(counter(&server), Some(1));
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_reset_before_the_request_executes_nothing() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.reset_before_next_request();
    let error = connection.incr::<_, _, u64>("n", 1).unwrap_err();
    assert!(error.is_connection_dropped() && !error.is_timeout(), "{error}");
    assert_eq!(counter(&server), None);
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn replies_with_given_bytes_are_lost_until_told_otherwise() {
    let (_server, proxy, mut connection) = behind_proxy();
    proxy.swallow_replies_with(b"PONG");
    assert_eq!(connection.incr::<_, _, u64>("n", 1).unwrap(), 1);
    assert!(ping(hasty(&mut connection)).unwrap_err().is_timeout());
    wait_until(LONG, "the reply is lost", || proxy.struck() == 1);
    proxy.swallow_replies_with(b"");
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn replies_are_delayed() {
    let (_server, proxy, mut connection) = behind_proxy();
    let delay = Duration::from_millis(60);
    proxy.delay(delay);
    let start = Instant::now();
    assert_eq!(ping(&mut connection).unwrap(), "PONG");
    assert!(start.elapsed() >= delay);
    assert_eq!(proxy.struck(), 1);
    proxy.delay(Duration::ZERO);
    assert_eq!(ping(&mut connection).unwrap(), "PONG");
    assert_eq!(proxy.struck(), 1);
}

#[test]
fn a_black_hole_keeps_even_the_end_to_itself() {
    let (server, proxy, mut connection) = behind_proxy();
    assert_eq!(server.clients(ClientKind::Normal).unwrap().len(), 1);
    proxy.black_hole(true);
    assert!(hasty(&mut connection).incr::<_, _, u64>("n", 1).unwrap_err().is_timeout());
    assert_eq!(counter(&server), None);
    drop(connection);
    std::thread::sleep(SHORT);
    assert_eq!(server.clients(ClientKind::Normal).unwrap().len(), 1);
    proxy.black_hole(false);
    wait_until(LONG, "the server sees the client go", || {
        server.clients(ClientKind::Normal).unwrap().is_empty()
    });
}

#[test]
fn a_black_hole_hides_that_the_server_has_gone() {
    let (server, proxy, _connection) = behind_proxy();
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    raw.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    raw.read_exact(&mut reply).unwrap();
    proxy.black_hole(true);
    server.kill().unwrap();
    raw.set_read_timeout(Some(SHORT)).unwrap();
    assert!(raw.read(&mut reply).is_err());
    proxy.black_hole(false);
    raw.set_read_timeout(Some(LONG)).unwrap();
    assert!(matches!(raw.read(&mut reply), Ok(0)));
}

#[test]
fn a_held_request_arrives_late_without_its_client() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.hold_requests(true);
    assert!(hasty(&mut connection).incr::<_, _, u64>("n", 1).unwrap_err().is_timeout());
    drop(connection);
    wait_until(LONG, "the request is held", || proxy.held() == 1);
    std::thread::sleep(SHORT);
    assert_eq!(counter(&server), None);
    proxy.hold_requests(false);
    wait_until(LONG, "the late copy arrives", || counter(&server) == Some(1));
    assert_eq!(proxy.held(), 0);
}

#[test]
fn a_held_request_outlives_a_cut_while_others_pass() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.hold_next_requests(1);
    let retry = std::thread::scope(|scope| {
        let first = scope.spawn(move || connection.incr::<_, _, u64>("n", 1));
        wait_until(LONG, "the request is held", || proxy.held() == 1);
        proxy.cut_all();
        assert!(first.join().unwrap().unwrap_err().is_connection_dropped());
        let mut second = connect(&proxy.url()).unwrap();
        second.incr::<_, _, u64>("n", 1).unwrap()
    });
    assert_eq!(retry, 1);
    proxy.release_held();
    wait_until(LONG, "the late copy arrives", || counter(&server) == Some(2));
    assert_eq!(proxy.held(), 0);
}

#[test]
fn refused_connections_meet_nobody() {
    let (_server, proxy, mut connection) = behind_proxy();
    proxy.refuse_connections(true).unwrap();
    let error = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(ping(&mut connection).unwrap(), "PONG");
    proxy.refuse_connections(false).unwrap();
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_cut_closes_all_connections_and_welcomes_new_ones() {
    let (server, proxy, mut one) = behind_proxy();
    let mut two = connect(&proxy.url()).unwrap();
    proxy.cut_all();
    for connection in [&mut one, &mut two] {
        let error = ping(connection).unwrap_err();
        assert!(!error.is_timeout(), "{error}");
    }
    wait_until(LONG, "the server sees both go", || server.clients(ClientKind::Normal).unwrap().is_empty());
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
    assert_eq!(proxy.connections(), 3);
}

#[test]
fn a_fault_strikes_only_what_matches() {
    let (server, proxy, mut connection) = behind_proxy();
    let mut other = connect(&proxy.url()).unwrap();
    let script = redis::Script::new("return redis.call('incr', 'n')");
    proxy.only_matching(script.get_hash().as_bytes());
    proxy.black_hole(true);
    let lost: RedisResult<u64> = script.invoke(hasty(&mut connection));
    assert!(lost.unwrap_err().is_timeout());
    assert_eq!(ping(&mut other).unwrap(), "PONG");
    wait_until(LONG, "the request is lost", || proxy.struck() == 1);
    assert_eq!(counter(&server), None);
    proxy.heal().unwrap();
    let n: u64 = script.invoke(&mut other).unwrap();
    assert_eq!(n, 1);
}

#[test]
fn new_connections_go_to_a_new_target() {
    let (_one, proxy, mut old) = behind_proxy();
    let two = RedisServer::start().unwrap();
    let _: () = two.connection().unwrap().set("here", 2).unwrap();
    proxy.set_target(two.port());
    assert_eq!(old.get::<_, Option<u64>>("here").unwrap(), None);
    let mut new = connect(&proxy.url()).unwrap();
    assert_eq!(new.get::<_, Option<u64>>("here").unwrap(), Some(2));
}

#[test]
fn without_a_target_a_client_is_closed() {
    let (server, proxy, mut connection) = behind_proxy();
    server.kill().unwrap();
    assert!(!ping(&mut connection).unwrap_err().is_timeout());
    let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    raw.set_read_timeout(Some(LONG)).unwrap();
    assert!(matches!(raw.read(&mut [0; 8]), Ok(0)));
    server.restart().unwrap();
    assert_eq!(ping(&mut connect(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_dropped_proxy_ends_soon_in_any_state() {
    let (_server, proxy, mut connection) = behind_proxy();
    let _raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    proxy.hold_next_requests(1);
    assert!(ping(hasty(&mut connection)).is_err());
    proxy.black_hole(true);
    proxy.delay(LONG);
    let port = proxy.port();
    let start = Instant::now();
    drop(proxy);
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}
