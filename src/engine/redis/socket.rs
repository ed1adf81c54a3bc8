//! Connections over sockets: how one is made and logged in, and a reader of what Redis sends on it. The `redis` crate
//! shows no socket, and reads with a generated parser, which takes ten times the instructions; to it is left what is rare
//! in replies.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::path::Path;
use std::time::Duration;

use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, Value, cmd, parse_redis_value,
};

use crate::clock::Moment;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::resp::unsigned;

/// What a buffer holds at first: most replies, and most messages.
const BUFFER: usize = 1024;
/// As deep as the `redis` crate reads.
const DEEPEST: usize = 100;
/// What values begin with.
const TYPES: &[u8] = b"+-:$*_#,%~>(=!|";

/// To what a read timeout is rounded: to set it is a system call, which is skipped if about the same is set.
const COARSE: Duration = Duration::from_millis(1);

/// Perhaps with TLS over it.
trait Stream: Read + Write + Send {
    fn timed(&mut self) -> &mut Timed;
}

impl Stream for Timed {
    fn timed(&mut self) -> &mut Timed {
        self
    }
}

#[cfg(feature = "tls")]
impl Stream for rustls::StreamOwned<rustls::ClientConnection, Timed> {
    fn timed(&mut self) -> &mut Timed {
        &mut self.sock
    }
}

/// A socket of any family. A reply may come in pieces, and signals may interrupt the wait for it: they have one time
/// together.
struct Timed {
    socket: TcpStream,
    /// When the time is up.
    until: Moment,
    /// The time that the reader has just read; none for what it reads after that.
    now: Option<Moment>,
    /// The read timeout that is set.
    limit: Duration,
}

impl Read for Timed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (is_first, now) = (self.now.is_some(), self.now.take().unwrap_or_else(Moment::now));
        if !is_first && self.until <= now {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = self.until.since(now).max(COARSE);
        if left.abs_diff(self.limit) > COARSE {
            self.socket.set_read_timeout(Some(left))?;
            self.limit = left;
        }
        self.socket.read(out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection.
pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    /// What was received. It is not cleared, so it is never written for nothing.
    buffer: Vec<u8>,
    /// Which part of it was not returned yet.
    from: usize,
    to: usize,
}

/// Asks for the credentials, connects, and logs in, by one write for all. Blocks for `limit` at most, but for the
/// credentials' provider.
pub(crate) fn connect(
    at: &ConnectionInfo,
    credentials: &Credentials,
    limit: Duration,
) -> RedisResult<Socket> {
    let until = Moment::now().after(limit);
    let info = credentials.given_to(at, limit)?;
    let settings = info.redis_settings();
    let login = match (settings.protocol().supports_resp3(), settings.username(), settings.password()) {
        (false, _, None) => Vec::new(),
        (false, user, Some(password)) => cmd("AUTH").arg(user).arg(password).get_packed_command(),
        (true, user, password) => {
            let auth = password.map(|password| ["AUTH", user.unwrap_or("default"), password]);
            cmd("HELLO").arg(3).arg(auth.as_ref()).get_packed_command()
        }
    };
    let only_if = |it: bool, cmd: &Cmd| if it { cmd.get_packed_command() } else { Vec::new() };
    let select = only_if(settings.db() != 0, cmd("SELECT").arg(settings.db()));
    let client = |words: &[&str]| cmd("CLIENT").arg(words).clone();
    let library = client(&["SETINFO", "LIB-NAME", "redis-concurrent"]).get_packed_command();
    let version = client(&["SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]).get_packed_command();
    let name = &credentials.client_name;
    let name = only_if(!name.is_empty(), &client(&["SETNAME", name]));
    let mut socket = Socket::over(dialled(info.addr(), credentials, until)?);
    socket.set_write_timeout(Some(left(until)))?;
    // The server may not have the commands for the names, or its user may not use them.
    let [login, select, ..] = socket.ask([login, select, library, version, name], until)?;
    login.extract_error().map_err(|e| credentials.refused(e))?;
    select.extract_error()?;
    Ok(socket)
}

#[cfg_attr(not(feature = "tls"), allow(unused_variables))]
fn dialled(addr: &ConnectionAddr, credentials: &Credentials, until: Moment) -> RedisResult<Box<dyn Stream>> {
    match addr {
        // Nobody serves at an address that means any.
        ConnectionAddr::Tcp(host, port) if !["0.0.0.0", "::"].contains(&&**host) => {
            Ok(Box::new(timed(dial(host, *port, until)?, until)))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(timed(dial_unix(path, until)?, until))),
        #[cfg(feature = "tls")]
        ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
            let tls = credentials.tls.clone().ok_or_else(|| io::Error::other("no certificates"))?;
            let name = rustls::pki_types::ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let session = rustls::ClientConnection::new(tls, name).map_err(io::Error::other)?;
            Ok(Box::new(rustls::StreamOwned::new(session, timed(dial(host, *port, until)?, until))))
        }
        _ => Err((ErrorKind::InvalidClientConfig, "cannot connect to an address like this").into()),
    }
}

/// By then, TLS must be agreed on.
fn timed(socket: TcpStream, until: Moment) -> Timed {
    Timed { socket, until, now: None, limit: Duration::MAX }
}

/// Tries all of the host's addresses.
fn dial(host: &str, port: u16, until: Moment) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)) {
            // A request may be written before the last one was answered: see `Connection::unread`.
            Ok(socket) => return socket.set_nodelay(true).map(|()| socket),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Where a server accepts nobody and its queue is full, Linux makes the next one wait, for as long as it may send;
/// other systems refuse it.
#[cfg(unix)]
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn dial_unix(path: &Path, until: Moment) -> io::Result<TcpStream> {
    #[cfg(target_os = "linux")]
    let socket = {
        use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(until)))?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        socket
    };
    #[cfg(not(target_os = "linux"))]
    let socket = std::os::fd::OwnedFd::from(std::os::unix::net::UnixStream::connect(path)?);
    Ok(socket.into())
}

/// A timeout of zero would mean none.
fn left(until: Moment) -> Duration {
    until.since(Moment::now()).max(Duration::from_millis(1))
}

impl Socket {
    fn over(stream: Box<dyn Stream>) -> Socket {
        Socket { stream, buffer: vec![0; BUFFER], from: 0, to: 0 }
    }

    pub(crate) fn set_write_timeout(&mut self, limit: Option<Duration>) -> RedisResult<()> {
        Ok(self.stream.timed().socket.set_write_timeout(limit)?)
    }

    pub(crate) fn send_packed_command(&mut self, packed: &[u8]) -> RedisResult<()> {
        Ok(self.stream.write_all(packed)?)
    }

    /// Returns the next value, whole, which must be there by `until`. After a timeout it can still be read: nothing is
    /// skipped.
    pub(crate) fn recv_response(&mut self, now: Moment, until: Moment) -> RedisResult<Value> {
        let timed = self.stream.timed();
        (timed.now, timed.until) = (Some(now), until);
        loop {
            if let Some((value, length)) = first_of(&self.buffer[self.from..self.to])? {
                self.from += length;
                if self.from == self.to {
                    (self.from, self.to) = (0, 0);
                }
                return Ok(value);
            }
            if self.to == self.buffer.len() {
                self.buffer.copy_within(self.from.., 0);
                (self.from, self.to) = (0, self.to - self.from);
                // A value that does not fit is read again from its beginning, but seldom.
                self.buffer.resize(self.buffer.len().max(self.to * 2), 0);
            }
            match self.stream.read(&mut self.buffer[self.to..]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(n) => self.to += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Sends requests in one write, and returns their replies, for which it waits until `by`: `Nil` to an empty one,
    /// which is not sent. If the server refuses one and closes the connection, the refusal says why.
    pub(crate) fn ask<const N: usize>(&mut self, all: [Vec<u8>; N], by: Moment) -> RedisResult<[Value; N]> {
        self.send_packed_command(&all.concat())?;
        let (mut replies, mut refused) = ([const { Value::Nil }; N], None);
        for (reply, _) in replies.iter_mut().zip(&all).filter(|(_, request)| !request.is_empty()) {
            let next = self.recv_response(Moment::now(), by);
            *reply = next.map_err(|e| refused.take().filter(|_| !e.is_timeout()).unwrap_or(e))?;
            refused = reply.clone().extract_error().err();
        }
        Ok(replies)
    }
}

/// Returns the value that `bytes` begin with, and its length; `None` if its end is not there yet.
fn first_of(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.value(1) {
        Ok(value) => Ok(Some((value, cursor.at))),
        Err(None) => Ok(None),
        Err(Some(e)) => Err(*e),
    }
}

/// `Err(None)`: more bytes are needed. (Boxed, as each value of a reply is moved in one of these.)
type Found<T> = Result<T, Option<Box<RedisError>>>;

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads what the replies of our scripts consist of; the rest is the `redis` crate's to read.
    fn value(&mut self, depth: usize) -> Found<Value> {
        let began = self.at;
        let (what, line) = self.line()?;
        match (what, number(line)) {
            (b':', Some(n)) => return Ok(Value::Int(n)),
            (b'$' | b'*', Some(n)) if n < 0 => return Ok(Value::Nil),
            (b'$', Some(n)) => return Ok(Value::BulkString(self.text(n)?.to_vec())),
            (b'*', Some(n)) if depth < DEEPEST => {
                let mut items = Vec::with_capacity((n as usize).min(self.bytes.len() - self.at));
                for _ in 0..n {
                    items.push(self.value(depth + 1)?);
                }
                return Ok(Value::Array(items));
            }
            _ => {}
        }
        self.at = began;
        self.skip(depth)?;
        parse_redis_value(&self.bytes[began..self.at]).map_err(|e| Some(Box::new(e)))
    }

    /// Goes to the end of a value of any type.
    fn skip(&mut self, depth: usize) -> Found<()> {
        let (what, line) = self.line()?;
        let n = || number(line).ok_or_else(garbled);
        let values = match what {
            b'$' | b'=' | b'!' => return if n()? < 0 { Ok(()) } else { self.text(n()?).map(drop) },
            b'*' | b'~' | b'>' => n()?,
            b'%' => n()?.saturating_mul(2),
            b'|' => n()?.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        if values > 0 && depth >= DEEPEST {
            return Err(garbled());
        }
        (0..values).try_for_each(|_| self.skip(depth + 1))
    }

    /// Returns the type of a value, and the rest of its first line.
    fn line(&mut self) -> Found<(u8, &'a [u8])> {
        let rest = &self.bytes[self.at..];
        let what = *rest.first().ok_or(None)?;
        let unfinished = || if TYPES.contains(&what) { None } else { garbled() };
        let end = 1 + rest[1..].iter().position(|byte| *byte == b'\r').ok_or_else(unfinished)?;
        self.at += end + 2;
        if *rest.get(end + 1).ok_or(None)? == b'\n' { Ok((what, &rest[1..end])) } else { Err(garbled()) }
    }

    /// Returns so many bytes, behind which a line ends.
    fn text(&mut self, n: i64) -> Found<&'a [u8]> {
        let line = self.bytes[self.at..].get(..n as usize + 2).ok_or(None)?;
        let (text, ends) = line.split_at(n as usize);
        self.at += text.len() + 2;
        if ends == b"\r\n" { Ok(text) } else { Err(garbled()) }
    }
}

fn number(line: &[u8]) -> Option<i64> {
    match line {
        [b'-', digits @ ..] => Some(-i64::try_from(unsigned(digits)?).ok()?),
        digits => unsigned(digits)?.try_into().ok(),
    }
}

fn garbled() -> Option<Box<RedisError>> {
    Some(Box::new((ErrorKind::Parse, "this is not the protocol of Redis").into()))
}

#[cfg(test)]
#[path = "../../../verify/unit/engine/redis/socket.rs"]
mod tests;
