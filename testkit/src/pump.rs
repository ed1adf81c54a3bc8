//! One connection through a proxy: a thread for the requests and one for the replies.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::faults::{Exchange, Faults, Reply, Request};

/// How long a read or a write may block before the thread checks what else has changed.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// How long the target may take to accept: on loopback it accepts at once or never.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// How long the server may take to reply and close after its client has gone.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

const CHUNK: usize = 64 * 1024;

/// The state shared by a proxy and its threads.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) faults: Mutex<Faults>,
    pub(super) target: AtomicU16,
    pub(super) ended: AtomicBool,
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    /// How many request chunks are being held.
    pub(super) held: AtomicUsize,
}

impl Shared {
    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// One accepted connection.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: OnceLock<TcpStream>,
    exchange: Mutex<Exchange>,
    cut: AtomicBool,
    client_gone: AtomicBool,
    /// How many request chunks of this connection are held.
    held: AtomicUsize,
}

impl Link {
    pub(super) fn new(client: TcpStream) -> io::Result<Self> {
        prepare(&client)?;
        let from = client.peer_addr().ok().map(|it| it.ip());
        Ok(Self {
            client,
            server: OnceLock::new(),
            exchange: Mutex::new(Exchange::with(from)),
            cut: AtomicBool::new(false),
            client_gone: AtomicBool::new(false),
            held: AtomicUsize::new(0),
        })
    }

    /// Closes the connection, but leaves the server side open for held requests.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        // The peer may have closed it already.
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = self.server.get()
            && self.held.load(Ordering::SeqCst) == 0
        {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Blocks while one side must not learn that the other has closed.
    fn await_visible_end(&self, shared: &Shared) {
        while !shared.ended() && !self.is_cut() && shared.faults.lock().hides_end(&self.exchange.lock()) {
            thread::sleep(TICK);
        }
    }
}

/// Connects to the target and passes chunks both ways until one side ends; blocks until then.
pub(super) fn run(shared: &Arc<Shared>, link: &Arc<Link>) {
    // There is nobody to report to: a client sees its connection closed, as behind a real proxy.
    if relay(shared, link).is_err() {
        link.cut();
    }
}

fn relay(shared: &Arc<Shared>, link: &Arc<Link>) -> io::Result<()> {
    let port = shared.target.load(Ordering::SeqCst);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)?;
    prepare(&stream)?;
    let server = link.server.get_or_init(|| stream);
    let replies = {
        let (shared, link) = (Arc::clone(shared), Arc::clone(link));
        thread::Builder::new().name("proxy replies".to_owned()).spawn(move || {
            if let Some(server) = link.server.get() {
                pass_replies(&shared, &link, server);
            }
        })?
    };
    pass_requests(shared, link, server);
    link.client_gone.store(true, Ordering::SeqCst);
    // The server still executes what was forwarded, since it reads that before the end.
    let _ = server.shutdown(Shutdown::Write);
    // If the thread panicked, nothing is left to clean up.
    let _ = replies.join();
    Ok(())
}

/// Passes requests on until the client has gone and none of its requests are held.
fn pass_requests(shared: &Shared, link: &Link, server: &TcpStream) {
    let mut held = Held::new(shared, link);
    let mut buffer = vec![0; CHUNK];
    loop {
        if !held.forward_if_released(server) {
            return;
        }
        let chunk = match read(&link.client, &mut buffer) {
            Progress::Some(0) => break,
            Progress::Some(size) => &buffer[..size],
            Progress::NotYet if shared.ended() => return,
            Progress::NotYet => continue,
        };
        shared.requests.fetch_add(1, Ordering::SeqCst);
        // Decided and kept under one lock, so that a release includes everything held before it.
        let mut faults = shared.faults.lock();
        match faults.request(chunk, &mut link.exchange.lock()) {
            // A later request must not overtake a held one.
            Request::Forward if held.chunks.is_empty() => {
                drop(faults);
                if !write_all(server, chunk, || shared.ended()) {
                    return;
                }
            }
            Request::Forward | Request::Hold => held.keep(chunk, faults.releases),
            Request::Lose => {}
            Request::Cut => {
                drop(faults);
                link.cut();
                return;
            }
        }
    }
    while !held.chunks.is_empty() {
        if shared.ended() || !held.forward_if_released(server) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    link.await_visible_end(shared);
}

/// Passes replies on until the server has closed, or takes too long to close after the client has gone.
fn pass_replies(shared: &Shared, link: &Link, server: &TcpStream) {
    let mut buffer = vec![0; CHUNK];
    let mut drain_end = None;
    let mut silent = false;
    loop {
        let chunk = match read(server, &mut buffer) {
            Progress::Some(0) => break,
            Progress::Some(size) => &buffer[..size],
            Progress::NotYet => &[],
        };
        if shared.ended() {
            return;
        }
        if link.client_gone.load(Ordering::SeqCst) {
            let end = *drain_end.get_or_insert_with(|| Instant::now() + DRAIN_LIMIT);
            if Instant::now() >= end {
                return;
            }
        }
        if chunk.is_empty() || silent {
            continue;
        }
        let over = || shared.ended() || link.is_cut();
        let fate = shared.faults.lock().reply(chunk, &link.exchange.lock());
        let mut rest = chunk;
        match fate {
            Reply::Forward => {}
            Reply::Delay(delay) => sleep_unless(delay, over),
            Reply::Split(pause) => {
                let (first, second) = chunk.split_at(chunk.len() / 2);
                sleep_unless(pause, over);
                let _ = write_all(&link.client, first, over);
                sleep_unless(pause, over);
                rest = second;
            }
            Reply::Lose => continue,
            Reply::Silence => {
                silent = true;
                continue;
            }
            Reply::Cut => {
                link.cut();
                return;
            }
        }
        // The server can finish its work even if the client has gone.
        let _ = write_all(&link.client, rest, over);
    }
    link.await_visible_end(shared);
    let _ = link.client.shutdown(Shutdown::Both);
}

/// The request chunks of one connection that wait to be released.
struct Held<'a> {
    shared: &'a Shared,
    link: &'a Link,
    chunks: Vec<Vec<u8>>,
    /// The count of releases when the first chunk was kept.
    since: u64,
}

impl<'a> Held<'a> {
    fn new(shared: &'a Shared, link: &'a Link) -> Self {
        Self { shared, link, chunks: Vec::new(), since: 0 }
    }

    fn keep(&mut self, chunk: &[u8], releases: u64) {
        if self.chunks.is_empty() {
            self.since = releases;
        }
        self.chunks.push(chunk.to_vec());
        self.link.held.fetch_add(1, Ordering::SeqCst);
        self.shared.held.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns `false` if the server no longer accepts data.
    fn forward_if_released(&mut self, server: &TcpStream) -> bool {
        if self.chunks.is_empty() || self.shared.faults.lock().releases == self.since {
            return true;
        }
        let chunks = std::mem::take(&mut self.chunks);
        let all = chunks.iter().all(|it| write_all(server, it, || self.shared.ended()));
        // Only now: a caller that sees a count of 0 may rely on the requests having been sent.
        self.forget(chunks.len());
        all
    }

    fn forget(&self, count: usize) {
        self.link.held.fetch_sub(count, Ordering::SeqCst);
        self.shared.held.fetch_sub(count, Ordering::SeqCst);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.forget(self.chunks.len());
    }
}

enum Progress {
    /// This many bytes; 0 at the end of the stream, whatever ended it.
    Some(usize),
    /// No data within a tick.
    NotYet,
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    // A stream accepted from a non-blocking listener may be non-blocking too.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> Progress {
    match stream.read(buffer) {
        Ok(size) => Progress::Some(size),
        Err(error) if is_timeout(&error) => Progress::NotYet,
        Err(_) => Progress::Some(0),
    }
}

/// Returns `false` if the peer has gone or `give_up` returns true.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], give_up: impl Fn() -> bool) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return false,
            Ok(size) => bytes = &bytes[size..],
            Err(error) if is_timeout(&error) && !give_up() => {}
            Err(_) => return false,
        }
    }
    true
}

fn sleep_unless(time: Duration, give_up: impl Fn() -> bool) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || give_up() {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}
