//! Unit tests of `src/nodes.rs`.

use super::*;
use crate::error::ErrorKind;

#[test]
fn all_nodes_of_a_url_are_read() {
    let named = |url: &str| {
        let (first, nodes) = nodes_at(url).unwrap().unwrap();
        let user = first.get_connection_info().redis_settings().username().map(str::to_owned);
        (user, nodes.iter().map(Node::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(named("redis+cluster://a:1"), (None, "a:1".into()));
    assert_eq!(named("redis+cluster://a,b:7000/"), (None, "a:6379 b:7000".into()));
    let (user, nodes) = named("valkey+cluster://u:p%40,x@[::1]:1,b/0?protocol=resp3");
    assert_eq!((user.as_deref(), &*nodes), (Some("u"), "[::1]:1 b:6379"));
    assert!(nodes_at("redis://a:1").is_none());
}

#[test]
fn what_is_no_list_of_nodes_is_refused_without_the_password() {
    for (url, why) in [
        ("redis+cluster://", "no node"),
        ("redis+cluster://u:secret@", "no node"),
        ("redis+cluster://u:secret@/0", "no node"),
        ("redis+cluster://a:1,,b:2", "no node"),
        ("redis+cluster://u:secret@a:1,b:2/3", "database 0"),
        ("redis+cluster://u:secret@a:x", "not the address"),
        ("redis+unix+cluster:///tmp/secret", "no node"),
        ("http+cluster://u:secret@a:1", "not the address"),
        ("redis+cluster://u:se/secret@a:1", "percent-encoded"),
    ] {
        let error = nodes_at(url).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        let text = format!("{error:#}");
        assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
    }
}
