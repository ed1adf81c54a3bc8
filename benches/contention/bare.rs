//! The floor: requests as bytes on a socket, with nothing around them.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// A connection to Redis that is no more than a socket.
pub(crate) struct Bare {
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Bare {
    pub(crate) fn connect(port: u16) -> io::Result<Bare> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Bare { stream, reply: vec![0; 4096] })
    }

    /// Sends one request and reads its whole reply.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> io::Result<&[u8]> {
        self.write(request)?;
        self.read()
    }

    /// Sends one request.
    pub(crate) fn write(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Reads the whole reply to one request.
    pub(crate) fn read(&mut self) -> io::Result<&[u8]> {
        let mut read = 0;
        loop {
            match self.stream.read(&mut self.reply[read..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => read += n,
            }
            let reply = &self.reply[..read];
            if after(reply) == Some(reply.len()) {
                break;
            }
        }
        let reply = &self.reply[..read];
        if reply[0] == b'-' {
            return Err(io::Error::other(String::from_utf8_lossy(reply).into_owned()));
        }
        Ok(reply)
    }

    /// Loads a script and returns its SHA1.
    pub(crate) fn load(&mut self, script: &str) -> io::Result<String> {
        let reply = self.exchange(&request(&["SCRIPT", "LOAD", script]))?;
        let text = String::from_utf8_lossy(reply).into_owned();
        text.lines().nth(1).map(str::to_owned).ok_or_else(|| io::Error::other(text))
    }
}

/// A command as Redis reads it.
pub(crate) fn request<T: AsRef<[u8]>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).bytes());
        bytes.extend(word.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Returns where the first reply in `bytes` ends, if it is complete.
fn after(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|it| it == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => match usize::try_from(count()?) {
            Ok(n) => (bytes.len() >= line + n + 2).then_some(line + n + 2),
            Err(_) => Some(line),
        },
        b'*' => {
            let mut end = line;
            for _ in 0..count()? {
                end += after(bytes.get(end..)?)?;
            }
            Some(end)
        }
        _ => Some(line),
    }
}

/// A prepared request: to send it again, only the numbers of some owner ids are overwritten.
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// The offset of each number.
    numbers: Vec<usize>,
}

/// The digits of an owner number: as many as the library's own soon have.
const DIGITS: usize = 12;

/// The smallest number with that many digits.
pub(crate) const FIRST: u64 = 10_u64.pow(DIGITS as u32 - 1);

/// An owner id of the process `uuid`, to be put into a [`Template`]. Until its number is set, `which`
/// distinguishes it from others.
pub(crate) fn id(uuid: &str, which: u64) -> String {
    format!("{uuid}:{}", FIRST + which)
}

impl Template {
    /// Prepares this request, which must contain each of these ids exactly once.
    pub(crate) fn new<T: AsRef<[u8]>>(words: &[T], ids: &[&str]) -> io::Result<Template> {
        let bytes = request(words);
        let end =
            |id: &&str| bytes.windows(id.len()).position(|it| it == id.as_bytes()).map(|at| at + id.len());
        let ends = ids.iter().map(end).collect::<Option<Vec<_>>>();
        let ends = ends.ok_or_else(|| io::Error::other("an owner id is not in its request"))?;
        Ok(Template { bytes, numbers: ends.into_iter().map(|end| end - DIGITS).collect() })
    }

    /// Returns the request with these numbers.
    pub(crate) fn with(&mut self, numbers: &[u64]) -> &[u8] {
        for (at, number) in self.numbers.iter().zip(numbers) {
            let mut rest = *number;
            for digit in self.bytes[*at..*at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}
