//! A sentinel that says what a test wants. It is no Redis: what decides here is what its client makes of a lie.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

/// What it says of any name.
#[derive(Clone, Debug)]
pub enum Says {
    /// The primary is at this port.
    At(u16),
    Unknown,
    Error(&'static str),
    /// It listens, and does not answer.
    Nothing,
}

/// Dropping it closes its connections and its port, and waits for its threads.
pub struct FakeSentinel {
    pub address: String,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    says: Mutex<Says>,
    /// How often it was asked where the primary is.
    requests: AtomicUsize,
    /// How often a client began to listen.
    heard: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
    ended: AtomicBool,
}

impl Shared {
    /// Each connection is served by a thread of its own, until it ends.
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        for connection in listener.incoming().map_while(Result::ok) {
            if self.ended.load(SeqCst) {
                break;
            }
            self.connections.lock().extend(connection.try_clone());
            let shared = self.clone();
            let thread = thread::Builder::new().name("fake sentinel".into());
            threads.push(thread.spawn(move || shared.serve(connection)).unwrap());
        }
        self.hang_up();
        threads.into_iter().for_each(|it| it.join().unwrap());
    }

    fn hang_up(&self) {
        for connection in self.connections.lock().drain(..) {
            // It may have ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl FakeSentinel {
    pub fn start(says: Says) -> FakeSentinel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            says: Mutex::new(says),
            requests: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
            connections: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        let acceptor = thread::Builder::new().name("fake sentinel's port".into());
        let acceptor = acceptor.spawn(move || accepting.accept(&listener)).unwrap();
        FakeSentinel { address, shared, acceptor: Some(acceptor) }
    }

    pub fn says(&self, says: Says) {
        *self.shared.says.lock() = says;
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        self.shared.hang_up();
    }

    pub fn listeners(&self) -> usize {
        self.shared.heard.load(SeqCst)
    }

    pub fn requests(&self) -> usize {
        self.shared.requests.load(SeqCst)
    }
}

impl Drop for FakeSentinel {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        // Wakes the thread that accepts; if nobody is there to be woken, it has ended.
        let _ = TcpStream::connect(&self.address);
        let ended = self.acceptor.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "a thread of the fake sentinel panicked");
        }
    }
}

impl Shared {
    fn serve(&self, connection: TcpStream) {
        let mut out = connection.try_clone().unwrap();
        let mut lines = BufReader::new(connection);
        while let Some(command) = command(&mut lines) {
            let says = self.says.lock().clone();
            let answer = match &*command[0].to_uppercase() {
                _ if matches!(says, Says::Nothing) => String::new(),
                "SENTINEL" => {
                    self.requests.fetch_add(1, SeqCst);
                    match says {
                        Says::At(port) => {
                            let port = port.to_string();
                            format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
                        }
                        Says::Error(line) => format!("-{line}\r\n"),
                        Says::Unknown | Says::Nothing => "*-1\r\n".to_owned(),
                    }
                }
                "SUBSCRIBE" => {
                    self.heard.fetch_add(1, SeqCst);
                    let field = |(n, it): (usize, &String)| {
                        format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{it}\r\n:{}\r\n", it.len(), n + 1)
                    };
                    command[1..].iter().enumerate().map(field).collect()
                }
                "PING" => "*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            };
            if out.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// The next command; `None` when the connection has ended.
fn command(lines: &mut impl BufRead) -> Option<Vec<String>> {
    let number = |lines: &mut dyn BufRead| -> Option<usize> {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse().ok()
    };
    let words = number(lines)?;
    let mut word = || {
        let mut word = vec![0; number(lines)? + 2];
        lines.read_exact(&mut word).ok()?;
        Some(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned())
    };
    (0..words).map(|_| word()).collect()
}
