//! Unit tests of `src/engine/redis/resp.rs`.

use super::*;
use crate::names::{KEYS, Names};

#[test]
fn it_is_what_the_redis_crate_would_send() {
    let names = Names::new("rc", "stück:42").unwrap();
    let args = ["uuid:1", "", "1234567", &"x".repeat(1_000)];
    let script = Script::plain("return 1");
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(redis::Script::new("return 1").get_hash()).arg(KEYS);
    for key in names.keys() {
        cmd.arg(key.concat());
    }
    cmd.arg(&args);
    let out = PackedCall::over(&script.by_sha, &PackedCall::keys(&names.keys())).with(&args).packed();
    assert_eq!(out, cmd.get_packed_command());
}

#[test]
fn any_number_of_keys_is_told() {
    for n in [0, 1, 9, 10, 60, 100] {
        let keys = vec![["a", ":b"]; n];
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(redis::Script::new("return 1").get_hash()).arg(n);
        for _ in &keys {
            cmd.arg("a:b");
        }
        cmd.arg(b"\0\xff");
        let out = PackedCall::over(&Script::plain("return 1").by_sha, &PackedCall::keys(&keys))
            .with(&[b"\0\xff"])
            .packed();
        assert_eq!(out, cmd.get_packed_command(), "{n}");
    }
}

#[test]
fn a_call_by_sha_becomes_one_in_full() {
    let script = Script::plain("return 1");
    let mut full = Vec::new();
    let by_sha = PackedCall::over(&script.by_sha, &PackedCall::keys(&[["a", ":b"], ["c", ""]]))
        .with(&["$7", ""])
        .packed();
    in_full(&mut full, &by_sha, &script);
    let mut expected = redis::cmd("EVAL");
    expected.arg("return 1").arg(2).arg(&["a:b", "c", "$7", ""]);
    assert_eq!(full, expected.get_packed_command());
}

#[test]
fn only_the_empty_arguments_at_the_end_are_left_out() {
    let mut packed = PackedCall::default();
    ["", "a", "", "", "$0\r\n", "", ""].iter().for_each(|arg| packed.add_if_any(arg));
    let mut all = PackedCall::default().with(&["b", ""]);
    all.add_all(&packed);
    let expected = PackedCall::default().with(&["b", "", "5", "", "a", "", "", "$0\r\n"]);
    assert_eq!((all.bytes, all.count), (expected.bytes, expected.count));
}
