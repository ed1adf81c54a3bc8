//! A script call as Redis reads it: an array of bulk strings; and the contents of its replies: numbers, text,
//! lists. What they mean for an operation is in `operations/replies.rs`.
//!
//! The call is written by hand, though everything else is left to the `redis` crate: every lock and unlock comes through
//! here, and the keys are put together only in the request, so that they take no memory while a lock is
//! merely held. It is put together in one buffer, from its beginning to its end.

use std::string::FromUtf8Error;

use redis::Value;

use crate::script::Script;

/// A script's call, as Redis reads it; or arguments alone, which become [part](Self::add_all) of one.
#[derive(Default)]
pub(crate) struct PackedCall {
    /// Without the end of the last line, which goes with what follows.
    bytes: Vec<u8>,
    count: usize,
    /// How many empty arguments go before the next that is not.
    left_out: usize,
}

impl PackedCall {
    /// These keys, each in two parts, behind their number. (Most need less than 48 bytes.)
    pub(crate) fn keys(keys: &[[&str; 2]]) -> Self {
        let mut packed = PackedCall { bytes: Vec::with_capacity(keys.len() * 48), ..Self::default() };
        packed.add([itoa::Buffer::new().format(keys.len())]);
        keys.iter().for_each(|key| packed.add(*key));
        packed
    }

    /// The call of a script that `begins` so, over these [keys](Self::keys).
    pub(crate) fn over(begins: &str, keys: &PackedCall) -> Self {
        // Most calls' arguments need less than 256 bytes.
        let mut bytes = Vec::with_capacity(begins.len() + keys.bytes.len() + 256);
        // The number of its elements is not known yet.
        bytes.extend_from_slice(b"*00\r\n");
        bytes.extend_from_slice(&begins.as_bytes()[..begins.len() - 2]);
        bytes.extend_from_slice(&keys.bytes);
        PackedCall { bytes, count: 2 + keys.count, left_out: 0 }
    }

    pub(crate) fn with<A: AsRef<[u8]>>(mut self, args: &[A]) -> Self {
        args.iter().for_each(|arg| self.add([arg]));
        self
    }

    /// Returns what is sent.
    pub(crate) fn packed(mut self) -> Vec<u8> {
        match self.count {
            n @ 10..100 => self.bytes[1..3].copy_from_slice(&digits(n)),
            n => drop(self.bytes.splice(1..3, n.to_string().into_bytes())),
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }

    /// Adds an argument, made of parts.
    pub(crate) fn add<const N: usize, P: AsRef<[u8]>>(&mut self, parts: [P; N]) {
        for _ in 0..std::mem::take(&mut self.left_out) {
            self.add([""]);
        }
        bulk(&mut self.bytes, parts);
        self.count += 1;
    }

    /// Adds an argument, which is left out if it is empty and no other follows.
    pub(crate) fn add_if_any(&mut self, arg: &str) {
        if arg.is_empty() { self.left_out += 1 } else { self.add([arg]) }
    }

    /// Adds the arguments of another call, behind their number.
    pub(crate) fn add_all(&mut self, others: &PackedCall) {
        self.add([itoa::Buffer::new().format(others.count)]);
        self.add_packed(others);
    }

    /// Adds these arguments.
    pub(crate) fn add_packed(&mut self, others: &PackedCall) {
        self.bytes.extend_from_slice(&others.bytes);
        self.count += others.count;
    }
}

/// Adds the call `packed`, which is by SHA1, as an `EVAL` of the script's source.
pub(crate) fn in_full(out: &mut Vec<u8>, packed: &[u8], script: &Script) {
    let head = packed.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    out.reserve(packed.len() + script.source.len());
    out.extend_from_slice(&packed[..head]);
    bulk(out, ["EVAL"]);
    bulk(out, [&script.source]);
    out.extend_from_slice(&packed[head + script.by_sha.len()..]);
}

/// Adds one argument, made of parts, behind the end of the line before it.
fn bulk<const N: usize, P: AsRef<[u8]>>(out: &mut Vec<u8>, parts: [P; N]) {
    length(out, parts.iter().map(|part| part.as_ref().len()).sum());
    for part in &parts {
        out.extend_from_slice(part.as_ref());
    }
}

/// Adds how long the argument is that follows. Most are short: written at once, their lengths take a fifth of the
/// instructions.
#[inline(always)]
fn length(out: &mut Vec<u8>, n: usize) {
    match n {
        0..10 => out.extend_from_slice(&[b'\r', b'\n', b'$', b'0' + n as u8, b'\r', b'\n']),
        10..100 => {
            let [tens, ones] = digits(n);
            out.extend_from_slice(&[b'\r', b'\n', b'$', tens, ones, b'\r', b'\n']);
        }
        _ => out.extend_from_slice(format!("\r\n${n}\r\n").as_bytes()),
    }
}

/// The digits of a number below a hundred.
fn digits(n: usize) -> [u8; 2] {
    let n = n as u8;
    [b'0' + n / 10, b'0' + n % 10]
}

/// Reads digits, as many as fit in any case.
pub(crate) fn unsigned(digits: &[u8]) -> Option<u64> {
    let more = |n: u64, digit: &u8| digit.is_ascii_digit().then(|| n * 10 + u64::from(digit - b'0'));
    Some(digits).filter(|it| (1..20).contains(&it.len()))?.iter().try_fold(0, more)
}

/// Reads a number: an integer, or text that parses as one.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(n) => Some(*n),
        other => text(Some(other))?.parse().ok(),
    }
}

/// Reads text.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    into_text(value?.clone())
}

/// The same without a copy. (`from_utf8_lossy` looks at each byte by itself.)
pub(crate) fn into_text(value: Value) -> Option<String> {
    let lossy = |e: FromUtf8Error| String::from_utf8_lossy(e.as_bytes()).into_owned();
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8(bytes).unwrap_or_else(lossy)),
        Value::SimpleString(text) => Some(text),
        Value::Int(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Reads a list; anything else counts as an empty one.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}

#[cfg(test)]
#[path = "../../../verify/unit/engine/redis/resp.rs"]
mod tests;
