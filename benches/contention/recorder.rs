//! Records what the library sends, on its way to the server.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use redis_concurrent::{Client, Error};

type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// The words of one request.
pub(crate) type Words = Vec<Vec<u8>>;

/// Returns the script calls that the library sends for `play`.
pub(crate) fn heard(port: u16, play: impl Fn(&Client) -> Result<(), Error>) -> io::Result<Vec<Words>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("redis://{}/", listener.local_addr()?);
    let heard = Heard::default();
    let ear = heard.clone();
    // Ends with this process; no client connects to it later.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                let _ = pump(client, server, &ear);
            }
        }
    });
    let client = Client::connect(&url).map_err(io::Error::other)?;
    // The first time, the server does not know the scripts yet.
    for turn in 0..3 {
        if turn == 2 {
            heard.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        play(&client).map_err(io::Error::other)?;
    }
    client.close().map_err(io::Error::other)?;
    let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(heard.iter().map(|bytes| words(bytes)).filter(|words| words[0] == b"EVALSHA").collect())
}

/// Forwards everything between the two, and keeps what the client sends. On loopback, a request that is sent
/// in one write arrives in one read.
fn pump(mut client: TcpStream, mut server: TcpStream, heard: &Heard) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut back, mut answers) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let heard = heard.clone();
    thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let n = client.read(&mut buffer)?;
            if n == 0 {
                return server.shutdown(Shutdown::Both);
            }
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(buffer[..n].to_vec());
            server.write_all(&buffer[..n])?;
        }
    });
    Ok(())
}

fn words(bytes: &[u8]) -> Words {
    let mut words = Vec::new();
    let mut rest = bytes;
    while let Some(end) = rest.windows(2).position(|it| it == b"\r\n") {
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.first() == Some(&b'$') {
            let n = std::str::from_utf8(&line[1..]).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
            words.push(rest[..n].to_vec());
            rest = &rest[n + 2..];
        }
    }
    words
}
