//! Unit tests of `src/engine/redis/slots.rs`.

use super::*;
use crate::engine::redis::refusal::refused;

fn node(host: &str, port: u16) -> Node {
    Node { host: host.to_owned(), port }
}

/// As `CLUSTER KEYSLOT` replies.
#[test]
fn a_slot_is_that_of_the_hash_tag() {
    for (key, slot) in [
        ("123456789", 12739),
        ("rc:{a}", 15495),
        ("a", 15495),
        ("{a}b{c}", 15495),
        ("", 0),
        ("{}", 15257),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
    ] {
        assert_eq!(Slot::of(key.as_bytes()).index(), slot, "{key:?}");
    }
}

#[test]
fn a_redirect_names_the_node_or_where_that_is_unknown_none() {
    let source = node("10.0.0.1", 7000);
    let read = |line: &str| {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let Value::ServerError(e) = value else { panic!("{line}") };
        Redirect::of(&refused(e.into()), &source)
    };
    let moved = |to| Some(Redirect::Moved(Slot(3999), to));
    assert_eq!(read("MOVED 3999 127.0.0.1:6381"), moved(Some(node("127.0.0.1", 6381))));
    assert_eq!(read("MOVED 3999 ::1:6381"), moved(Some(node("::1", 6381))));
    assert_eq!(read("MOVED 3999 :6381"), moved(Some(node("10.0.0.1", 6381))));
    assert_eq!(read("MOVED 3999 host.example:6381"), moved(Some(node("host.example", 6381))));
    assert_eq!(read("MOVED 3999 ?:6381"), moved(None));
    for line in ["ASK 3999 127.0.0.1:6381", "TRYAGAIN Multiple keys", "CLUSTERDOWN Hash slot not served"] {
        assert_eq!(read(line), Some(Redirect::Soon), "{line}");
    }
    for line in ["MOVED", "MOVED 99999 a:1", "MOVED 1 a", "LOADING it", "ERR MOVED 3999 127.0.0.1:6381"] {
        assert_eq!(read(line), None, "{line}");
    }
    assert_eq!(node("::1", 1).to_string(), "[::1]:1");
}

#[test]
fn a_map_is_read_with_hostnames_and_without_hosts() {
    let bulk = |text: &str| Value::BulkString(text.into());
    let node_of = |host: Value, port| Value::Array(vec![host, Value::Int(port), bulk(&format!("id-{port}"))]);
    let range = |first, last, nodes: Vec<Value>| {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    };
    let answer = Value::Array(vec![
        range(0, 99, vec![node_of(bulk("a.example"), 1), node_of(bulk("b"), 2)]),
        range(100, 100, vec![node_of(Value::Nil, 3)]),
        range(101, 199, vec![node_of(bulk(""), 4)]),
        range(200, 299, vec![node_of(bulk("?"), 5)]),
        range(0, 99999, vec![node_of(bulk("a"), 6)]),
        Value::Nil,
    ]);
    let map = read(&answer, &node("seed", 7));
    let ranges: Vec<_> = map.iter().map(|range| (range.slots.clone(), range.primary.to_string())).collect();
    assert_eq!(
        ranges,
        [(0..=99, "a.example:1".into()), (100..=100, "seed:3".into()), (101..=199, "seed:4".to_owned())]
    );
    assert_eq!(map[0].ids, ["id-1", "id-2"]);
    // A node without the hostname by which it is to be named has its address beside that, in either protocol.
    let first_host = |host: &str, ip: &str, map: fn(Vec<Value>) -> Value| {
        let named =
            vec![bulk(host), Value::Int(8), bulk("id"), map(["other", "1", "ip", ip].map(bulk).into())];
        let map = read(&Value::Array(vec![range(0, 9, vec![Value::Array(named)])]), &node("seed", 7));
        map.first().map(|range| range.primary.to_string())
    };
    let pairs =
        |flat: Vec<Value>| Value::Map(flat.chunks(2).map(|it| (it[0].clone(), it[1].clone())).collect());
    for map in [Value::Array, pairs] {
        assert_eq!(first_host("?", "10.0.0.8", map).unwrap(), "10.0.0.8:8");
        assert_eq!(first_host("?", "", map).unwrap(), "seed:8", "of the node itself, which does not know it");
        assert_eq!(first_host("a.example", "10.0.0.8", map).unwrap(), "a.example:8");
        assert_eq!(first_host("", "10.0.0.8", map).unwrap(), "seed:8");
    }
    assert_eq!(read(&Value::Nil, &node("seed", 7)), []);
}
