//! A script call as Redis reads it: an array of bulk strings; and the contents of its replies: numbers, text,
//! lists. What they mean for an operation is in `operations/replies.rs`.
//!
//! The call is written by hand, though everything else is left to the `redis` crate: every lock and unlock comes through
//! here, and the keys are put together only in the request, so that they take no memory while a lock is
//! merely held.

use redis::Value;

/// Adds `verb script <how many keys> <keys> <args>` to `out`; each key is in two parts.
pub(crate) fn call<A: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    verb: &str,
    script: &str,
    keys: &[[&str; 2]],
    args: &[A],
) {
    /// More than most parts have.
    const PART: usize = 48;
    let parts = 3 + keys.len() + args.len();
    out.reserve(parts * PART);
    head(out, b'*', parts);
    bulk(out, [verb]);
    bulk(out, [script]);
    bulk(out, [itoa::Buffer::new().format(keys.len())]);
    for key in keys {
        bulk(out, *key);
    }
    for arg in args {
        bulk(out, [arg]);
    }
}

/// Adds the call `by_sha`, an `EVALSHA`, as an `EVAL` of the script's source.
pub(crate) fn in_full(out: &mut Vec<u8>, by_sha: &[u8], sha: &str, source: &str) {
    let mut replaced = Vec::new();
    bulk(&mut replaced, ["EVALSHA"]);
    bulk(&mut replaced, [sha]);
    let head = by_sha.iter().position(|byte| *byte == b'$').unwrap_or_default();
    out.reserve(by_sha.len() + source.len());
    out.extend_from_slice(&by_sha[..head]);
    bulk(out, ["EVAL"]);
    bulk(out, [source]);
    out.extend_from_slice(&by_sha[head + replaced.len()..]);
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
