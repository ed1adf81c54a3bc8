//! The private server.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use redis::{Commands, cmd};
use redis_concurrent_testkit::*;

use super::{LONG, connect, exists, hasty, ping};

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
    let mut connection = connect(&server.url()).unwrap();
    server.stop().unwrap();
    assert!(ping(hasty(&mut connection)).unwrap_err().is_timeout());
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
    if is_role("harness::server::role_server_owner") {
        let server = RedisServer::start().unwrap();
        server.stop().unwrap();
        tell_parent(&server.port().to_string()).unwrap();
        tell_parent(&server.folder().display().to_string()).unwrap();
        hear_parent().unwrap();
    }
}

#[test]
fn a_server_dies_with_its_owner_even_when_both_cannot_help_it() {
    let mut owner = Child::spawn("harness::server::role_server_owner", &[]).unwrap();
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
    assert_eq!(ping(&mut connect(&server.url()).unwrap()).unwrap(), "PONG");
    let unix = server.unix_url().unwrap();
    assert_eq!(ping(&mut connect(&unix).unwrap()).unwrap(), "PONG");
    assert!(
        connect(&format!("redis://127.0.0.1:{}/", server.port()))
            .map_or(true, |mut it| { ping(&mut it).is_err() })
    );
    server.restart().unwrap();
    assert_eq!(ping(&mut connect(&unix).unwrap()).unwrap(), "PONG");
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
    if is_role("harness::server::role_without_redis") {
        tell_parent(&RedisServer::start().unwrap_err().to_string()).unwrap();
    }
}

#[test]
fn a_missing_server_is_named() {
    let env = [("REDIS_SERVER_BIN", "no-such-redis")];
    let child = Child::spawn("harness::server::role_without_redis", &env).unwrap();
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
