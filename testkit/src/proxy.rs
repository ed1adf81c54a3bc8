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
use super::server::PORT_TRIES;

/// How often a new connection is looked for.
const ACCEPT_POLL: Duration = Duration::from_millis(1);

/// How long the port may take to be closed, or to be had again.
const PORT_LIMIT: Duration = Duration::from_secs(30);

/// A proxy on a loopback address of its own in front of a port of 127.0.0.1.
///
/// It passes *chunks*: what one read gives, which on loopback is a whole command or pipeline of
/// less than 64 KiB, or the reply to one. Faults are set at run time and stand alone or
/// together; each concerns the chunks that come after the call. They also strike what a client
/// library sends by itself, as on connecting, unless [`only_matching`](Self::only_matching)
/// narrows them. No method blocks longer than noted. "Closed" is a FIN or a RST, as the kernel
/// has it.
///
/// Dropping it closes all connections and joins all threads, within a second or so.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    front: Arc<Front>,
    address: SocketAddr,
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
    /// Starts a proxy in front of `target_port` on 127.0.0.1. The target need not be there: a
    /// client whose connection cannot be passed on is accepted and then closed.
    ///
    /// # Errors
    ///
    /// If there is no free port or no thread to be had.
    pub fn start(target_port: u16) -> io::Result<Self> {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), target_port)
    }

    /// The same at this loopback address; with port 0, at a free port of it.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start).
    pub fn start_at(address: SocketAddr, target_port: u16) -> io::Result<Self> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        shared.target.store(target_port, Ordering::SeqCst);
        let front = Arc::new(Front { listener: Mutex::new(Some(listener)), links: Mutex::default() });
        let acceptor = {
            let (shared, front) = (Arc::clone(&shared), Arc::clone(&front));
            thread::Builder::new().name("proxy acceptor".to_owned()).spawn(move || front.run(&shared))?
        };
        Ok(Self { shared, front, address, acceptor: Some(acceptor) })
    }

    /// Starts one at each of two loopback addresses, with the same port, in front of these ports of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// See [`start`](Self::start); also if no free port of the first address is free at the other.
    pub fn start_at_one_port(
        [(one, target), (other, other_target)]: [(Ipv4Addr, u16); 2],
    ) -> io::Result<[Self; 2]> {
        let mut taken = io::ErrorKind::AddrInUse.into();
        for _ in 0..PORT_TRIES {
            let first = Self::start_at((one, 0).into(), target)?;
            // Connections of other servers may come from this port of the other address.
            match Self::start_at((other, first.port()).into(), other_target) {
                Ok(second) => return Ok([first, second]),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL to connect to, without a password.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Sends new connections to another port; the present ones stay where they are.
    pub fn set_target(&self, port: u16) {
        self.shared.target.store(port, Ordering::SeqCst);
    }

    /// Narrows all faults on chunks to requests that have these bytes in them (the SHA1 of a
    /// script, say) and to what the server sends after such a request on the same connection.
    /// No bytes: to all. Whole connections ([`cut_all`](Self::cut_all),
    /// [`refuse_connections`](Self::refuse_connections)) are not narrowed.
    pub fn only_matching(&self, bytes: &[u8]) {
        self.set(|faults| faults.filter = bytes.to_vec());
    }

    /// Loses the next `n` reply chunks; the connections go on. Replaces an earlier count.
    pub fn swallow_replies(&self, n: usize) {
        self.set(|faults| faults.lose_replies = n);
    }

    /// Loses every reply chunk that contains these bytes, whatever it replies to: what a server sends its
    /// subscribers, say. Replaces earlier ones; no bytes: none is lost. Not narrowed by
    /// [`only_matching`](Self::only_matching).
    pub fn swallow_replies_with(&self, bytes: &[u8]) {
        self.set(|faults| faults.deaf_to = bytes.to_vec());
    }

    /// Passes on the next request, so that the server executes it, loses its reply and then
    /// closes the connection. Can be armed several times for as many requests.
    pub fn swallow_next_reply_and_reset(&self) {
        self.set(|faults| faults.cut_at_reply += 1);
    }

    /// Closes the connection on which the next request comes, and passes nothing of it on. Can
    /// be armed several times for as many requests.
    pub fn reset_before_next_request(&self) {
        self.set(|faults| faults.cut_at_request += 1);
    }

    /// Passes each reply chunk on only after this time, one after the other; zero for none.
    pub fn delay(&self, time: Duration) {
        self.set(|faults| faults.delay = time);
    }

    /// Passes each reply chunk on in two halves, each only after this time; zero: whole. To a client whose reads have a
    /// timeout each, a reply may so come after its time without any of them having been late.
    /// What is [delayed](Self::delay) is not split.
    pub fn split_replies(&self, time: Duration) {
        self.set(|faults| faults.split = time);
    }

    /// While on, connections are accepted and read, but nothing is passed on either way, not
    /// even that one side has closed: they are half-open. What was read is lost for good. When
    /// turned off, a closed side becomes known to the other within 20 ms or so.
    pub fn black_hole(&self, on: bool) {
        self.set(|faults| faults.black_hole = on);
    }

    /// Connections that come from this address are in a black hole from now on, whatever they ask; `None`: no address's
    /// are. Not narrowed by [`only_matching`](Self::only_matching).
    pub fn cut_off(&self, address: Option<IpAddr>) {
        self.set(|faults| faults.cut_off = address);
    }

    /// While on, requests are kept; turned off, they are all passed on, within 20 ms or so, in
    /// order for each connection, also when their client has gone: late copies.
    pub fn hold_requests(&self, on: bool) {
        self.set(|faults| {
            faults.hold_all = on;
            if !on {
                faults.hold_next = 0;
                faults.releases += 1;
            }
        });
    }

    /// Keeps only the next `n` requests, and what follows them on the same connections, until
    /// [`release_held`](Self::release_held); the others pass.
    pub fn hold_next_requests(&self, n: usize) {
        self.set(|faults| faults.hold_next = n);
    }

    /// Passes on the requests that are held now, as [`hold_requests`](Self::hold_requests) when
    /// turned off, but leaves it on. They have been sent when [`held`](Self::held) says 0.
    pub fn release_held(&self) {
        self.set(|faults| faults.releases += 1);
    }

    /// While on, a connection attempt gets "connection refused": there is no listener. The present
    /// connections stay. It has taken effect on return; either way may block, for 2 s at most.
    ///
    /// # Errors
    ///
    /// If the port cannot be closed in that time, or was taken by another process meanwhile.
    pub fn refuse_connections(&self, on: bool) -> io::Result<()> {
        let mut listener = self.front.listener.lock();
        if on {
            *listener = None;
            return await_closed(self.address);
        }
        if listener.is_some() {
            return Ok(());
        }
        let end = Instant::now() + PORT_LIMIT;
        loop {
            match listen(self.address) {
                Ok(again) => {
                    *listener = Some(again);
                    return Ok(());
                }
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => thread::sleep(ACCEPT_POLL),
            }
        }
    }

    /// Closes all current connections, on both sides; new ones are accepted. A held request is kept all the
    /// same and passed on when released.
    pub fn cut_all(&self) {
        // While it has the listener, no connection is between being accepted and being listed, and a client
        // that is connected but not yet accepted can be disconnected too.
        let listener = self.front.listener.lock();
        while let Some(Ok(_)) = listener.as_ref().map(TcpListener::accept) {}
        for link in self.front.links.lock().iter().filter_map(Weak::upgrade) {
            link.cut();
        }
    }

    /// Turns all faults off, the filter too, and passes on what is held. What was lost or closed stays so.
    /// Blocks like [`refuse_connections`](Self::refuse_connections).
    ///
    /// # Errors
    ///
    /// See [`refuse_connections`](Self::refuse_connections).
    pub fn heal(&self) -> io::Result<()> {
        self.set(Faults::clear);
        self.refuse_connections(false)
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many request chunks came so far, whatever happened to them.
    pub fn request_count(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// How many request chunks are held now.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// How many chunks were struck by a fault so far: lost, held, delayed or answered by closing
    /// the connection. A test asks this to know that its fault has really happened.
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
            // If it panicked, the test has the message already.
            let _ = acceptor.join();
        }
    }
}

impl Front {
    /// Accepts until the end, then waits for the threads of all connections.
    fn run(&self, shared: &Arc<Shared>) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        while !shared.ended.load(Ordering::SeqCst) {
            match self.accept(shared) {
                Some(thread) => {
                    threads.retain(|it| !it.is_finished());
                    threads.push(thread);
                }
                None => thread::sleep(ACCEPT_POLL),
            }
        }
        let listener = self.listener.lock().take();
        if let Some(Ok(address)) = listener.as_ref().map(TcpListener::local_addr) {
            drop(listener);
            // At the end there is no one to report to.
            let _ = await_closed(address);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// `None` if there is no connection to accept, or no means to serve it.
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

/// A listener that does not block, so that it can be taken away at any time.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Blocks until the port has no listener. A process that another thread is just starting has our open files
/// too, the listener among them, until it becomes its own program.
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
