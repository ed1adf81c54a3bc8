//! A web server, and a client that sends what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

/// Long enough for anything that is sure to happen.
pub const LONG: Duration = Duration::from_secs(60);

/// A server on a free port, until it is dropped.
pub struct Web {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Web {
    pub fn start(router: Router) -> Web {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Web { address, _runtime: runtime }
    }
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header that is there once.
    pub fn header<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.headers(name);
        let value = values.next();
        assert!(values.next().is_none(), "{self:?}");
        value
    }

    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.head.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request on a connection of its own, which the server closes after its answer.
pub fn send(to: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<TcpStream> {
    let length = body.len().to_string();
    send_raw(to, line, &[headers, &[("content-length", &length)]].concat(), body)
}

/// The same with headers that say themselves how the body is sent.
pub fn send_raw(
    to: SocketAddr,
    line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<TcpStream> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_read_timeout(Some(LONG))?;
    let mut head = format!("{line} HTTP/1.1\r\nhost: web\r\nconnection: close\r\n");
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    connection.write_all(&[head.as_bytes(), b"\r\n", body].concat())?;
    Ok(connection)
}

/// Reads the answer to a request that was sent; its body is of a known length, or ends with the connection.
pub fn hear(mut connection: TcpStream) -> std::io::Result<Answer> {
    let mut all = Vec::new();
    connection.read_to_end(&mut all)?;
    let broken = || std::io::Error::other(format!("no answer: {:?}", String::from_utf8_lossy(&all)));
    let end = all.windows(4).position(|it| it == b"\r\n\r\n").ok_or_else(broken)?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.get(9..12).and_then(|it| it.parse().ok()).ok_or_else(broken)?;
    Ok(Answer { status, head, body: all[end + 4..].to_vec() })
}

pub fn ask(to: SocketAddr, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    send(to, line, headers, body).and_then(hear).unwrap()
}
