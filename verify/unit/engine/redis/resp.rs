//! Unit tests of `src/engine/redis/resp.rs`.

use super::*;
use crate::names::{KEYS, Names};

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
    call(&mut out, "EVAL", "return 1", &names.keys(), &args);
    assert_eq!(out, cmd.get_packed_command());
}

#[test]
fn any_number_of_keys_is_told() {
    for n in [0, 1, 9, 10, 60, 100] {
        let keys = vec![["a", ":b"]; n];
        let mut cmd = redis::cmd("EVAL");
        cmd.arg("return 1").arg(n);
        for _ in &keys {
            cmd.arg("a:b");
        }
        cmd.arg(b"\0\xff");
        let mut out = Vec::new();
        call(&mut out, "EVAL", "return 1", &keys, &[b"\0\xff"]);
        assert_eq!(out, cmd.get_packed_command(), "{n}");
    }
}

#[test]
fn a_call_by_sha_becomes_one_in_full() {
    let keys = [["a", ":b"], ["c", ""]];
    let (mut by_sha, mut full, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    call(&mut by_sha, "EVALSHA", "0123", &keys, &["$7", ""]);
    in_full(&mut full, &by_sha, "0123", "return 1");
    call(&mut expected, "EVAL", "return 1", &keys, &["$7", ""]);
    assert_eq!(full, expected);
}
