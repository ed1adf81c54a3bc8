//! The test harness itself, on real servers, real sockets and real processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redis::{Commands, Connection, RedisResult, cmd};
use redis_concurrent_testkit::*;

const SHORT: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(10);

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// A connection that waits for a reply no longer than `SHORT`.
fn hasty(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(LONG)?;
    connection.set_read_timeout(Some(SHORT))?;
    Ok(connection)
}

fn ping(connection: &mut Connection) -> RedisResult<String> {
    cmd("PING").query(connection)
}

/// A server with a proxy in front of it and a connection through that.
fn behind_proxy() -> (RedisServer, Proxy, Connection) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let connection = hasty(&proxy.url()).unwrap();
    (server, proxy, connection)
}

fn counter(server: &RedisServer) -> Option<u64> {
    server.connection().unwrap().get("n").unwrap()
}

// ---- server ----

#[test]
fn two_servers_run_side_by_side() {
    let (one, two) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    assert_ne!(one.port(), two.port());
    assert_ne!(one.pid(), two.pid());
    let _: () = one.connection().unwrap().set("a", 1).unwrap();
    assert_eq!(one.keys().unwrap(), ["a"]);
    assert!(two.keys().unwrap().is_empty());
    one.flush_all().unwrap();
    assert!(one.keys().unwrap().is_empty());
}

#[test]
fn a_stopped_server_is_silent_until_it_goes_on() {
    let server = RedisServer::start().unwrap();
    let mut connection = hasty(&server.url()).unwrap();
    server.stop().unwrap();
    assert!(ping(&mut connection).unwrap_err().is_timeout());
    server.cont().unwrap();
    assert_eq!(ping(&mut server.connection().unwrap()).unwrap(), "PONG");
}

#[test]
fn a_restart_keeps_what_the_append_only_file_has() {
    let server = RedisServer::builder().appendonly(true).start().unwrap();
    let (port, pid) = (server.port(), server.pid());
    let _: () = server.connection().unwrap().set("kept", 1).unwrap();
    server.restart().unwrap();
    assert_eq!(server.keys().unwrap(), ["kept"]);
    let _: () = server.connection().unwrap().set("too", 1).unwrap();
    server.kill().unwrap();
    assert_eq!(server.pid(), None);
    assert!(server.stop().is_err());
    assert!(server.connection().is_err());
    server.restart().unwrap();
    assert_eq!(server.keys().unwrap(), ["kept", "too"]);
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
}

#[test]
fn a_restart_without_persistence_comes_up_empty() {
    let server = RedisServer::start().unwrap();
    let _: () = server.connection().unwrap().set("lost", 1).unwrap();
    server.shutdown().unwrap();
    server.shutdown().unwrap();
    assert_eq!(server.pid(), None);
    server.restart().unwrap();
    assert!(server.keys().unwrap().is_empty());
}

#[test]
fn drop_leaves_no_process_and_no_folder() {
    for stopped in [false, true] {
        let server = RedisServer::start().unwrap();
        let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
        assert!(exists(pid) && folder.is_dir());
        if stopped {
            server.stop().unwrap();
        }
        drop(server);
        assert!(!exists(pid) && !folder.exists());
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_server_owner() {
    if is_role("harness::role_server_owner") {
        let server = RedisServer::start().unwrap();
        server.stop().unwrap();
        tell_parent(&server.port().to_string()).unwrap();
        tell_parent(&server.folder().display().to_string()).unwrap();
        hear_parent().unwrap();
    }
}

#[test]
fn a_server_dies_with_its_owner_even_when_both_cannot_help_it() {
    let mut owner = Child::spawn("harness::role_server_owner", &[]).unwrap();
    let port: u16 = owner.read_line_within(LONG).unwrap().parse().unwrap();
    let folder = PathBuf::from(owner.read_line_within(LONG).unwrap());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    owner.kill9().unwrap();
    wait_until(LONG, "the orphaned server ends", || TcpStream::connect(("127.0.0.1", port)).is_err());
    wait_until(LONG, "its folder is deleted", || !folder.exists());
}

#[test]
fn password_and_unix_socket_are_in_the_urls() {
    let server = RedisServer::builder().password("p@ss/w:rd %1").unix_socket(true).start().unwrap();
    assert_eq!(ping(&mut hasty(&server.url()).unwrap()).unwrap(), "PONG");
    let unix = server.unix_url().unwrap();
    assert_eq!(ping(&mut hasty(&unix).unwrap()).unwrap(), "PONG");
    assert!(
        hasty(&format!("redis://127.0.0.1:{}/", server.port()))
            .map_or(true, |mut it| { ping(&mut it).is_err() })
    );
    server.restart().unwrap();
    assert_eq!(ping(&mut hasty(&unix).unwrap()).unwrap(), "PONG");
    assert_eq!(RedisServer::start().unwrap().unix_url(), None);
}

#[test]
fn options_reach_the_server_and_bad_ones_are_reported() {
    let server = RedisServer::builder()
        .arg("client-output-buffer-limit", "pubsub 1mb 0 0")
        .arg("maxmemory", "64mb")
        .start()
        .unwrap();
    let (_, bytes): (String, String) =
        cmd("CONFIG").arg(&["GET", "maxmemory"]).query(&mut server.connection().unwrap()).unwrap();
    assert_eq!(bytes, (64 * 1024 * 1024).to_string());
    let error = RedisServer::builder().arg("no-such-option", "1").start();
    assert!(error.unwrap_err().to_string().contains("no-such-option"));
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_without_redis() {
    if is_role("harness::role_without_redis") {
        tell_parent(&RedisServer::start().unwrap_err().to_string()).unwrap();
    }
}

#[test]
fn a_missing_server_is_named() {
    let env = [("REDIS_SERVER_BIN", "no-such-redis")];
    let child = Child::spawn("harness::role_without_redis", &env).unwrap();
    let error = child.read_line_within(LONG).unwrap();
    assert!(error.contains("no-such-redis was not found"), "{error}");
}

#[test]
fn commands_are_counted() {
    let server = RedisServer::start().unwrap();
    let mut connection = server.connection().unwrap();
    for _ in 0..50 {
        let _: u64 = connection.incr("n", 1).unwrap();
    }
    let _: () = cmd("DEBUG").arg(&["SLEEP", "0.01"]).query(&mut connection).unwrap();
    let calls = server.command_calls().unwrap();
    assert_eq!(calls.get("incrby"), Some(&50));
    assert!(!calls.contains_key("client|setinfo"));
    assert!(server.usec("DEBUG").unwrap() >= 10_000);
    assert_eq!(server.usec("get").unwrap(), 0);
    server.reset_stats().unwrap();
    assert_eq!(server.command_calls().unwrap().get("incrby"), None);
}

#[test]
fn the_end_of_a_key_is_told_to_the_millisecond() {
    let server = RedisServer::start().unwrap();
    let mut connection = server.connection().unwrap();
    let ms: u64 = 4_102_444_800_123;
    let _: () = cmd("SET").arg(&["ends", "1", "PXAT", &ms.to_string()]).query(&mut connection).unwrap();
    let _: () = connection.set("stays", 1).unwrap();
    for _ in 0..100 {
        assert_eq!(expires_at(&mut connection, "ends").unwrap(), Some(Duration::from_millis(ms)));
    }
    assert_eq!(expires_at(&mut connection, "stays").unwrap(), None);
    assert_eq!(expires_at(&mut connection, "missing").unwrap(), None);
}

#[test]
fn clients_are_listed_and_killed_by_kind() {
    let server = RedisServer::start().unwrap();
    let mut normal = server.connection().unwrap();
    let mut subscriber = server.connection().unwrap();
    let mut subscriber = subscriber.as_pubsub();
    assert_eq!(server.clients(ClientKind::Normal).unwrap().len(), 2);
    assert_eq!(server.clients(ClientKind::PubSub).unwrap().len(), 0);
    subscriber.subscribe("c").unwrap();
    assert_eq!(server.clients(ClientKind::Normal).unwrap().len(), 1);
    assert_eq!(server.clients(ClientKind::PubSub).unwrap().len(), 1);
    assert_eq!(server.kill_clients(ClientKind::PubSub).unwrap(), 1);
    assert!(subscriber.get_message().is_err());
    assert_eq!(ping(&mut normal).unwrap(), "PONG");
    assert_eq!(server.kill_clients(ClientKind::Normal).unwrap(), 1);
    assert!(ping(&mut normal).is_err());
}

// ---- proxy ----

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
        assert_eq!(counter(&server), Some(n));
    }
    raw.write_all(b"INCR n\r\n").unwrap();
    let size = raw.read(&mut reply).unwrap();
    assert_eq!(&reply[..size], b":3\r\n");
    assert_eq!(proxy.struck(), 2);
}

#[test]
fn a_swallowed_reply_with_reset_was_executed() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.swallow_next_reply_and_reset();
    let error = connection.incr::<_, _, u64>("n", 1).unwrap_err();
    assert!(error.is_connection_dropped() && !error.is_timeout(), "{error}");
    assert_eq!(counter(&server), Some(1));
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_reset_before_the_request_executes_nothing() {
    let (server, proxy, mut connection) = behind_proxy();
    proxy.reset_before_next_request();
    let error = connection.incr::<_, _, u64>("n", 1).unwrap_err();
    assert!(error.is_connection_dropped() && !error.is_timeout(), "{error}");
    assert_eq!(counter(&server), None);
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn replies_with_given_bytes_are_lost_until_told_otherwise() {
    let (_server, proxy, mut connection) = behind_proxy();
    proxy.swallow_replies_with(b"PONG");
    assert_eq!(connection.incr::<_, _, u64>("n", 1).unwrap(), 1);
    assert!(ping(&mut connection).unwrap_err().is_timeout());
    assert_eq!(proxy.struck(), 1);
    proxy.swallow_replies_with(b"");
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
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
    assert!(connection.incr::<_, _, u64>("n", 1).unwrap_err().is_timeout());
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
    assert!(connection.incr::<_, _, u64>("n", 1).unwrap_err().is_timeout());
    drop(connection);
    assert_eq!(proxy.held(), 1);
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
        let mut second = hasty(&proxy.url()).unwrap();
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
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_cut_closes_all_connections_and_welcomes_new_ones() {
    let (server, proxy, mut one) = behind_proxy();
    let mut two = hasty(&proxy.url()).unwrap();
    proxy.cut_all();
    for connection in [&mut one, &mut two] {
        let error = ping(connection).unwrap_err();
        assert!(!error.is_timeout(), "{error}");
    }
    wait_until(LONG, "the server sees both go", || server.clients(ClientKind::Normal).unwrap().is_empty());
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
    assert_eq!(proxy.connections(), 3);
}

#[test]
fn a_fault_strikes_only_what_matches() {
    let (server, proxy, mut connection) = behind_proxy();
    let mut other = hasty(&proxy.url()).unwrap();
    let script = redis::Script::new("return redis.call('incr', 'n')");
    proxy.only_matching(script.get_hash().as_bytes());
    proxy.black_hole(true);
    let lost: RedisResult<u64> = script.invoke(&mut connection);
    assert!(lost.unwrap_err().is_timeout());
    assert_eq!(ping(&mut other).unwrap(), "PONG");
    assert_eq!(counter(&server), None);
    assert_eq!(proxy.struck(), 1);
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
    let mut new = hasty(&proxy.url()).unwrap();
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
    assert_eq!(ping(&mut hasty(&proxy.url()).unwrap()).unwrap(), "PONG");
}

#[test]
fn a_dropped_proxy_ends_soon_in_any_state() {
    let (_server, proxy, mut connection) = behind_proxy();
    let _raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    proxy.hold_next_requests(1);
    assert!(ping(&mut connection).is_err());
    proxy.black_hole(true);
    proxy.delay(LONG);
    let port = proxy.port();
    let start = Instant::now();
    drop(proxy);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

// ---- waiting ----

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

// ---- children ----

#[test]
#[ignore = "a role, played by a child process"]
fn role_echo() {
    if is_role("harness::role_echo") {
        println!("noise");
        tell_parent(&std::env::var("GREETING").unwrap()).unwrap();
        while let Some(line) = hear_parent().unwrap() {
            assert_ne!(line, "fail");
            if line == "end" {
                return;
            }
            tell_parent(&line).unwrap();
        }
    }
}

fn echo() -> Child {
    let child = Child::spawn("harness::role_echo", &[("GREETING", "hello, you")]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "hello, you");
    child
}

#[test]
fn a_child_hears_and_answers() {
    let mut child = echo();
    for word in ["one", "two words"] {
        child.say(word).unwrap();
        assert_eq!(child.read_line_within(LONG).unwrap(), word);
    }
    let error = child.read_line_within(SHORT).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("noise"), "{error}");
    assert!(child.wait_within(SHORT).is_err());
    child.say("end").unwrap();
    assert!(child.wait_within(LONG).unwrap().success());
}

#[test]
fn a_child_is_stopped_and_goes_on() {
    let mut child = echo();
    child.stop().unwrap();
    child.say("later").unwrap();
    assert!(child.read_line_within(SHORT).is_err());
    child.cont().unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "later");
}

#[test]
fn a_child_that_fails_or_is_killed_is_no_success() {
    let mut child = echo();
    child.say("fail").unwrap();
    assert!(!child.wait_within(LONG).unwrap().success());
    let mut child = echo();
    child.stop().unwrap();
    assert!(!child.kill9().unwrap().success());
    let error = child.read_line_within(LONG).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(child.stop().is_err());
}

#[test]
fn a_dropped_child_is_gone() {
    let child = echo();
    let pid = child.pid();
    drop(child);
    assert!(!exists(pid));
}

#[test]
fn an_unknown_role_is_noticed() {
    let child = Child::spawn("harness::role_nobody_plays", &[]).unwrap();
    let error = child.read_line_within(LONG).unwrap_err().to_string();
    assert!(error.contains("running 0 tests"), "{error}");
}
