//! A TCP proxy that breaks connections on demand.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::faults::Faults;
use super::pump::{self, Link, Shared};
use super::reserved::{PORT_TRIES, Reserved};

/// How often the proxy checks for new connections, and how often once none has come for long.
const ACCEPT_POLL: Duration = Duration::from_millis(1);
const IDLE_POLL: Duration = Duration::from_millis(5);

/// How long closing the port may take, or getting it back.
const PORT_LIMIT: Duration = Duration::from_secs(30);

/// A proxy on its own loopback address, in front of a port of 127.0.0.1.
///
/// It passes on *chunks*: whatever one read returns, which on loopback is a whole command or pipeline of less
/// than 64 KiB, or the reply to it. Faults are set at run time, alone or together; each affects the chunks
/// that arrive after the call. They also affect what a client library sends by itself, for example on
/// connecting, unless [`only_matching`](Self::only_matching) narrows them. No method blocks longer than
/// noted. "Closed" means a FIN or a RST, as the kernel chooses.
///
/// Dropping it closes all connections and joins all threads, within about a second.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    front: Arc<Front>,
    address: Reserved,
    acceptor: Option<JoinHandle<()>>,
}

/// The listening side.
#[derive(Debug)]
struct Front {
    /// `None` while connections are refused.
    listener: Mutex<Option<TcpListener>>,
    links: Mutex<Vec<Weak<Link>>>,
}

impl Proxy {
    /// Starts a proxy in front of `target_port` on 127.0.0.1. The target need not exist: a client that cannot
    /// be connected to it is accepted and then closed.
    ///
    /// # Errors
    ///
    /// If there is no free port, or a thread cannot be started.
    pub fn start(target_port: u16) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), target_port)
    }

    /// Like [`start`](Self::start), but at this loopback address; port 0 stands for any free port.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start); also if a server or a proxy of this process has the address, even if
    /// nothing listens there now.
    pub fn start_at(address: SocketAddr, target_port: u16) -> io::Result<Self> {
        let (listener, address) = Reserved::listen(address)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
        shared.target.store(target_port, Ordering::SeqCst);
        let front = Arc::new(Front { listener: Mutex::new(Some(listener)), links: Mutex::default() });
        let acceptor = {
            let (shared, front) = (Arc::clone(&shared), Arc::clone(&front));
            thread::Builder::new().name("proxy acceptor".to_owned()).spawn(move || front.run(&shared))?
        };
        Ok(Self { shared, front, address, acceptor: Some(acceptor) })
    }

    /// Starts two proxies with the same port, one at each of two loopback addresses, in front of these ports
    /// of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start); also if no port is free at both addresses.
    pub fn start_at_one_port(
        [(one, target), (other, other_target)]: [(Ipv4Addr, u16); 2],
    ) -> io::Result<[Self; 2]> {
        let mut taken = io::ErrorKind::AddrInUse.into();
        for _ in 0..PORT_TRIES {
            let first = Self::start_at((one, 0).into(), target)?;
            // An outgoing connection of another server may use this port at the other address.
            match Self::start_at((other, first.port()).into(), other_target) {
                Ok(second) => return Ok([first, second]),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// Returns the port to connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL to connect to, without a password.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address.address())
    }

    /// Directs new connections to another port; existing connections keep their target.
    pub fn set_target(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// Narrows all faults on chunks to requests that arrive after this call and contain these bytes (the SHA1
    /// of a script, for example), and to what the server sends after such a request on the same connection.
    /// Empty `bytes` match every request. Faults on whole connections ([`cut_all`](Self::cut_all),
    /// [`refuse_connections`](Self::refuse_connections)) are not narrowed.
    pub fn only_matching(&self, bytes: &[u8]) {
        self.set(|faults| faults.narrow(bytes));
    }

    /// Discards the next `n` reply chunks; the connections stay open, and go on. No network does that: where a request
    /// may be sent before the last one's reply is read, the next reply would be taken for it. See
    /// [`silence`](Self::silence). Replaces an earlier count.
    pub fn swallow_replies(&self, n: usize) {
        self.set(|faults| faults.lose_replies = n);
    }

    /// On the next `n` connections on which a reply comes, discards it and all that follow; they stay open. Replaces an
    /// earlier count.
    pub fn silence(&self, n: usize) {
        self.set(|faults| faults.silence = n);
    }

    /// Discards every reply chunk that contains these bytes, whether or not it replies to anything: a message
    /// to a subscriber, for example. Replaces earlier bytes; if empty, nothing is discarded. Not narrowed by
    /// [`only_matching`](Self::only_matching).
    pub fn swallow_replies_with(&self, bytes: &[u8]) {
        self.set(|faults| faults.deaf_to = bytes.to_vec());
    }

    /// Passes on the next request, so that the server executes it, but discards its reply and closes the
    /// connection. Can be armed several times, for as many requests.
    pub fn swallow_next_reply_and_reset(&self) {
        self.set(|faults| faults.cut_at_reply += 1);
    }

    /// Closes the connection on which the next request arrives, without passing any of it on. Can be armed
    /// several times, for as many requests.
    pub fn reset_before_next_request(&self) {
        self.set(|faults| faults.cut_at_request += 1);
    }

    /// Delays each reply chunk by this time, one after the other; zero turns the delay off.
    pub fn delay(&self, time: Duration) {
        self.set(|faults| faults.delay = time);
    }

    /// Passes each reply chunk on in two halves, each after this time; zero turns splitting off. For a client
    /// with a timeout per read, a reply can thus arrive too late although no single read was. Chunks that are
    /// [delayed](Self::delay) are not split.
    pub fn split_replies(&self, time: Duration) {
        self.set(|faults| faults.split = time);
    }

    /// While on, connections are accepted and read, but nothing is passed on in either direction, not even
    /// that one side has closed: the connections are half-open. What was read meanwhile is lost for good.
    /// Once turned off, each side learns within about 20 ms that the other has closed.
    pub fn black_hole(&self, on: bool) {
        self.set(|faults| faults.black_hole = on);
    }

    /// From now on, treats connections from this address as in a [black hole](Self::black_hole), whatever
    /// they send; `None` ends this. Not narrowed by [`only_matching`](Self::only_matching).
    pub fn cut_off(&self, address: Option<IpAddr>) {
        self.set(|faults| faults.cut_off = address);
    }

    /// While on, requests are held back. Once turned off, they are all passed on within about 20 ms, in order
    /// for each connection, even if their client has gone: late copies.
    pub fn hold_requests(&self, on: bool) {
        self.set(|faults| {
            faults.hold_all = on;
            if !on {
                faults.hold_next = 0;
                faults.releases += 1;
            }
        });
    }

    /// Holds back only the next `n` requests, and whatever follows them on the same connections, until
    /// [`release_held`](Self::release_held); other requests pass.
    pub fn hold_next_requests(&self, n: usize) {
        self.set(|faults| faults.hold_next = n);
    }

    /// Passes on the requests that are held now, as turning [`hold_requests`](Self::hold_requests) off does,
    /// but leaves it on. They have been sent once [`held`](Self::held) returns 0.
    pub fn release_held(&self) {
        self.set(|faults| faults.releases += 1);
    }

    /// While on, connection attempts fail with "connection refused", since there is no listener. Existing
    /// connections stay. Has taken effect on return; turning it on or off may block, for at most 30 s.
    ///
    /// # Errors
    ///
    /// If the port cannot be closed in that time, or another process has taken it meanwhile.
    pub fn refuse_connections(&self, on: bool) -> io::Result<()> {
        let mut listener = self.front.listener.lock();
        if on {
            *listener = None;
            return await_closed(self.address.address());
        }
        if listener.is_some() {
            return Ok(());
        }
        let end = Instant::now() + PORT_LIMIT;
        loop {
            match listen(self.address.address()) {
                Ok(again) => {
                    *listener = Some(again);
                    return Ok(());
                }
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => thread::sleep(ACCEPT_POLL),
            }
        }
    }

    /// Closes all current connections, on both sides; new ones are accepted. Held requests are kept
    /// nevertheless, and passed on when released.
    pub fn cut_all(&self) {
        // While this has the listener, no connection is accepted but not yet listed. Clients that are
        // connected but not yet accepted are disconnected too.
        let listener = self.front.listener.lock();
        while let Some(Ok(_)) = listener.as_ref().map(TcpListener::accept) {}
        for link in self.front.links.lock().iter().filter_map(Weak::upgrade) {
            link.cut();
        }
    }

    /// Turns all faults off, the filter included, and passes on what is held. What was lost or closed stays
    /// so. Blocks like [`refuse_connections`](Self::refuse_connections).
    ///
    /// # Errors
    ///
    /// See [`refuse_connections`](Self::refuse_connections).
    pub fn heal(&self) -> io::Result<()> {
        self.set(Faults::clear);
        self.refuse_connections(false)
    }

    /// Returns how many connections have been accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns how many request chunks have arrived so far, whatever happened to them.
    pub fn request_count(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Returns how many request chunks are being held.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Returns how many chunks were affected by a fault so far: lost, held, delayed, or answered by closing
    /// the connection. Lets a test check that its fault really happened.
    pub fn struck(&self) -> u64 {
        self.shared.faults.lock().struck
    }

    fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.shared.faults.lock());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(acceptor) = self.acceptor.take() {
            // If the thread panicked, its message has been printed already.
            let _ = acceptor.join();
        }
    }
}

impl Front {
    /// Accepts connections until the proxy ends, then waits for the threads of all connections.
    fn run(&self, shared: &Arc<Shared>) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut last = Instant::now();
        while !shared.ended.load(Ordering::SeqCst) {
            match self.accept(shared) {
                Some(thread) => {
                    threads.retain(|it| !it.is_finished());
                    threads.push(thread);
                    last = Instant::now();
                }
                None => thread::sleep((last.elapsed() / 16).clamp(ACCEPT_POLL, IDLE_POLL)),
            }
        }
        let listener = self.listener.lock().take();
        if let Some(Ok(address)) = listener.as_ref().map(TcpListener::local_addr) {
            drop(listener);
            // At this point there is nobody to report an error to.
            let _ = await_closed(address);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Returns `None` if there is no connection to accept, or it cannot be served.
    fn accept(&self, shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
        let listener = self.listener.lock();
        let (client, _) = listener.as_ref()?.accept().ok()?;
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let link = Arc::new(Link::new(client).ok()?);
        let mut links = self.links.lock();
        links.retain(|it| it.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        let shared = Arc::clone(shared);
        thread::Builder::new().name("proxy requests".to_owned()).spawn(move || pump::run(&shared, &link)).ok()
    }
}

/// Returns a non-blocking listener, so that it can be taken away at any time.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Blocks until the port has no listener. A process that another thread is just starting shares our open
/// files, the listener among them, until it executes its own program.
fn await_closed(address: SocketAddr) -> io::Result<()> {
    let end = Instant::now() + PORT_LIMIT;
    while TcpStream::connect_timeout(&address, PORT_LIMIT).is_ok() {
        if Instant::now() >= end {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("somebody else listens on {address}"),
            ));
        }
        thread::sleep(ACCEPT_POLL);
    }
    Ok(())
}
