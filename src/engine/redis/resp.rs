//! A script call as Redis reads it: an array of bulk strings; and the contents of its replies: numbers, text,
//! lists. What they mean for an operation is in `operations/replies.rs`.
//!
//! The call is written by hand, though everything else is left to the `redis` crate: every lock and unlock comes through
//! here, and the keys are put together only in the request, so that they take no memory while a lock is
//! merely held.

use redis::Value;

use crate::script::Script;

/// The arguments of a script's call, as Redis reads them.
pub(crate) struct PackedArgs {
    bytes: Vec<u8>,
    count: usize,
    /// How many empty ones go before the next that is not.
    left_out: usize,
}

impl PackedArgs {
    pub(crate) fn new() -> Self {
        // Those of most calls need less.
        PackedArgs { bytes: Vec::with_capacity(256), count: 0, left_out: 0 }
    }

    pub(crate) fn of<A: AsRef<[u8]>>(args: &[A]) -> Self {
        let mut packed = PackedArgs::new();
        args.iter().for_each(|arg| packed.add([arg]));
        packed
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
    pub(crate) fn add_all(&mut self, others: &PackedArgs) {
        self.add([itoa::Buffer::new().format(others.count)]);
        self.bytes.extend_from_slice(&others.bytes);
        self.count += others.count;
    }
}

/// The call of a script that `begins` so, over keys, each in two parts.
pub(crate) fn call(begins: &str, keys: &[[&str; 2]], args: &PackedArgs) -> Vec<u8> {
    // Most keys need less than 48 bytes.
    let mut out = Vec::with_capacity(begins.len() + (keys.len() + 1) * 48 + args.bytes.len());
    head(&mut out, b'*', 3 + keys.len() + args.count);
    out.extend_from_slice(begins.as_bytes());
    bulk(&mut out, [itoa::Buffer::new().format(keys.len())]);
    keys.iter().for_each(|key| bulk(&mut out, *key));
    out.extend_from_slice(&args.bytes);
    out
}

/// Adds the call `packed`, which is by SHA1, as an `EVAL` of the script's source.
pub(crate) fn in_full(out: &mut Vec<u8>, packed: &[u8], script: &Script) {
    let head = packed.iter().position(|byte| *byte == b'$').unwrap_or_default();
    out.reserve(packed.len() + script.source.len());
    out.extend_from_slice(&packed[..head]);
    bulk(out, ["EVAL"]);
    bulk(out, [&script.source]);
    out.extend_from_slice(&packed[head + script.by_sha.len()..]);
}

/// Adds one argument, made of parts.
fn bulk<const N: usize, P: AsRef<[u8]>>(out: &mut Vec<u8>, parts: [P; N]) {
    head(out, b'$', parts.iter().map(|part| part.as_ref().len()).sum());
    for part in &parts {
        out.extend_from_slice(part.as_ref());
    }
    out.extend_from_slice(b"\r\n");
}

/// Adds the type of what follows, and how much of it there is. Most numbers are small: written at once, they take a
/// third of the instructions.
fn head(out: &mut Vec<u8>, what: u8, n: usize) {
    let digit = |n: usize| b'0' + (n % 10) as u8;
    match n {
        0..10 => out.extend_from_slice(&[what, digit(n), b'\r', b'\n']),
        10..100 => out.extend_from_slice(&[what, digit(n / 10), digit(n), b'\r', b'\n']),
        _ => {
            out.push(what);
            out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
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
    match value? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
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
