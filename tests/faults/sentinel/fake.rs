//! A sentinel that says what a test wants. It is no Redis: what decides here is what its client makes of a lie.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

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

pub struct FakeSentinel {
    pub address: String,
    says: Arc<Mutex<Says>>,
    /// How often it was asked where the primary is.
    asked: Arc<AtomicUsize>,
    /// How often somebody began to listen.
    heard: Arc<AtomicUsize>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl FakeSentinel {
    /// Its threads end with the process of the tests.
    pub fn start(says: Says) -> FakeSentinel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (says, asked) = (Arc::new(Mutex::new(says)), Arc::new(AtomicUsize::new(0)));
        let heard = Arc::new(AtomicUsize::new(0));
        let connections: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let fake = FakeSentinel {
            address,
            says: says.clone(),
            asked: asked.clone(),
            heard: heard.clone(),
            connections: connections.clone(),
        };
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (says, asked, heard) = (says.clone(), asked.clone(), heard.clone());
                connections.lock().extend(connection.try_clone());
                thread::spawn(move || serve(connection, &says, [&asked, &heard]));
            }
        });
        fake
    }

    pub fn says(&self, says: Says) {
        *self.says.lock() = says;
    }

    /// Closes all connections.
    pub fn hang_up(&self) {
        for connection in self.connections.lock().drain(..) {
            // It may have ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub fn listeners(&self) -> usize {
        self.heard.load(SeqCst)
    }

    pub fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

fn serve(connection: TcpStream, says: &Mutex<Says>, [asked, heard]: [&AtomicUsize; 2]) {
    let mut out = connection.try_clone().unwrap();
    let mut lines = BufReader::new(connection);
    while let Some(command) = command(&mut lines) {
        let says = says.lock().clone();
        let answer = match &*command[0].to_uppercase() {
            _ if matches!(says, Says::Nothing) => String::new(),
            "SENTINEL" => {
                asked.fetch_add(1, SeqCst);
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
                heard.fetch_add(1, SeqCst);
                let told = |(n, it): (usize, &String)| {
                    format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{it}\r\n:{}\r\n", it.len(), n + 1)
                };
                command[1..].iter().enumerate().map(told).collect()
            }
            "PING" => "*2\r\n$4\r\npong\r\n$0\r\n\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
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
