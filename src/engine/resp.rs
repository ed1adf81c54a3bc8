//! A script's call as Redis reads it: an array of bulk strings.
//!
//! By hand, where everything else is left to the `redis` crate: every lock and unlock comes along
//! here, and the keys are put together only in the request, so that they need no memory while a lock
//! is merely held.

use crate::names::{KEYS, Names};

/// Adds `verb script 6 <keys> <args>` to what is to be sent.
pub(crate) fn call(out: &mut Vec<u8>, verb: &str, script: &str, names: &Names, args: &[&str]) {
    /// `$`, a length, and two line ends.
    const FRAME: usize = 12;
    const COUNT: &str = "6";
    const { assert!(KEYS == 6) };
    let keys = names.keys();
    let data: usize = keys.as_flattened().iter().chain(args).map(|text| text.len()).sum();
    let parts = 3 + keys.len() + args.len();
    out.reserve(data + verb.len() + script.len() + (parts + 2) * FRAME);
    head(out, b'*', parts);
    bulk(out, &[verb]);
    bulk(out, &[script]);
    bulk(out, &[COUNT]);
    for key in &keys {
        bulk(out, key);
    }
    for arg in args {
        bulk(out, &[arg]);
    }
}

/// One argument, made of parts.
fn bulk(out: &mut Vec<u8>, parts: &[&str]) {
    head(out, b'$', parts.iter().map(|part| part.len()).sum());
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn head(out: &mut Vec<u8>, what: u8, n: usize) {
    fn decimal(out: &mut Vec<u8>, n: usize) {
        if n >= 10 {
            decimal(out, n / 10);
        }
        out.push(b'0' + (n % 10) as u8);
    }
    out.push(what);
    decimal(out, n);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_the_redis_crate_would_send() {
        let names = Names::new("rc", "stück:42").unwrap();
        let args = ["uuid:1", "", "1234567", &"x".repeat(1_000)];
        let mut cmd = redis::cmd("EVAL");
        cmd.arg("return 1").arg(KEYS);
        for key in names.keys() {
            cmd.arg(key.concat());
        }
        cmd.arg(&args);
        let mut out = Vec::new();
        call(&mut out, "EVAL", "return 1", &names, &args);
        assert_eq!(out, cmd.get_packed_command());
    }
}
