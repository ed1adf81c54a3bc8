//! The example of a web server, by requests over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::RedisServer;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::demo::program;

/// The kind that observers get.
const WINDOW: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(20);
const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A web server, ended with the test.
struct Web {
    process: Child,
    address: SocketAddrV4,
}

impl Web {
    fn start(redis: &RedisServer) -> Web {
        let mut command = Command::new(program("web_limit"));
        let process = command.env("REDIS_URL", redis.url()).stdout(Stdio::piped()).spawn().unwrap();
        let mut web = Web { process, address: SocketAddrV4::new(ONE, 0) };
        let mut line = String::new();
        BufReader::new(web.process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        web.address = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        web
    }

    /// The status of one request from this address, and after how many seconds to come again.
    fn get(&self, from: Ipv4Addr) -> (u16, Option<u64>) {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((from, 0))).unwrap();
        connect(&socket, &SocketAddr::V4(self.address)).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let retry = answer.lines().find_map(|line| line.strip_prefix("Retry-After: "));
        (status, retry.map(|seconds| seconds.parse().unwrap()))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn each_address_gets_in_three_times_in_ten_seconds_whichever_web_server_it_asks() {
    let redis = RedisServer::start().unwrap();
    let (web, twin) = (Web::start(&redis), Web::start(&redis));
    let began = Instant::now();
    assert_eq!([web.get(ONE), twin.get(ONE), web.get(ONE)], [(200, None); 3]);
    let (status, retry) = twin.get(ONE);
    assert_eq!(status, 429);
    let seconds = retry.expect("a time to come again");
    assert!((1..=10).contains(&seconds), "{seconds}");
    // Another address is another matter.
    assert_eq!(web.get(OTHER), (200, None));
    thread::sleep(Duration::from_secs(seconds));
    assert_eq!(web.get(ONE), (200, None));
    assert!(began.elapsed() >= WINDOW, "{:?}", began.elapsed());
    // Without Redis nobody is let in.
    drop(redis);
    assert_eq!(web.get(OTHER).0, 503);
}
