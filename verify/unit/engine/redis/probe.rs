//! Unit tests of `src/engine/redis/probe.rs`.

use super::*;

#[test]
fn a_server_is_unfit_by_its_mode_its_version_or_its_role() {
    let at = "redis.example:6379";
    let rejection = |info: &str| {
        fit(info, at).and_then(|()| not_a_replica(info, at)).err().map(|e| (e.kind(), e.to_string()))
    };
    for fit in [
        "",
        "redis_version:6.2.14\r\nredis_mode:standalone\r\nrole:master\r\n",
        "redis_version:7.2.4\r\nserver_mode:standalone\r\nvalkey_version:9.1.2\r\nrole:master\r\n",
        "redis_version:10.0.0\r\nrole:master\r\n",
        "redis_version:unstable\r\nrole:master\r\n",
    ] {
        assert_eq!(rejection(fit), None, "{fit:?}");
    }
    for (info, kind, why) in [
        ("redis_version:7.0.15\r\nredis_mode:sentinel\r\n", ErrorKind::InvalidInput, "is a Sentinel"),
        ("redis_version:7.2.4\r\nserver_mode:sentinel\r\n", ErrorKind::InvalidInput, "is a Sentinel"),
        (
            "redis_version:6.0.16\r\nrole:master\r\n",
            ErrorKind::InvalidInput,
            "Redis 6.0.16: 6.2 is the first",
        ),
        ("redis_version:5.0.14\r\nrole:slave\r\n", ErrorKind::InvalidInput, "Redis 5.0.14"),
        (
            "redis_version:7.0.15\r\nrole:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:6379\r\n",
            ErrorKind::Unavailable,
            "a replica of 10.0.0.1:6379",
        ),
    ] {
        let (is, text) = rejection(info).unwrap();
        assert!(is == kind && text.contains(why) && text.contains(at), "{info:?}: {text}");
    }
}

#[test]
fn primaries_are_counted_once_each() {
    let node = |port: i64| {
        let name = Value::BulkString(format!("id-{port}").into());
        Value::Array(vec![Value::BulkString("127.0.0.1".into()), Value::Int(port), name])
    };
    let range = |start: i64, primary: i64| {
        Value::Array(vec![Value::Int(start), Value::Int(start + 99), node(primary), node(7)])
    };
    let of = |primaries_of: &[i64]| {
        primaries(&Value::Array(primaries_of.iter().map(|&port| range(port, port)).collect()))
    };
    assert_eq!([of(&[]), of(&[1]), of(&[1, 1]), of(&[1, 2, 1, 3])], [0, 1, 1, 3]);
    assert_eq!(primaries(&Value::Nil), 0);
}
