//! Unit tests of `src/address.rs`.

use super::*;
use crate::error::ErrorKind;

fn sentinels(url: &str) -> Result<(Sentinels, ConnectionInfo), Error> {
    address_at(url).map(|it| (it.sentinels.unwrap(), it.server))
}

fn at(info: &ConnectionInfo) -> String {
    let (user, password) = (info.redis_settings().username(), info.redis_settings().password());
    format!("{}:{}@{}", user.unwrap_or(""), password.unwrap_or(""), info.addr())
}

#[test]
fn a_sentinel_url_names_all_of_them_and_one_primary() {
    let (named, login) = sentinels(
        "redis+sentinel://app:a%2Fb@one,two:1,[::1],[::2]:3/my%20master/5?protocol=resp3&sentinel_user=s&\
         sentinel_password=p%40",
    )
    .unwrap();
    assert_eq!(named.master, "my master");
    let nodes: Vec<_> = named.nodes.iter().map(at).collect();
    assert_eq!(nodes, ["s:p@@one:26379", "s:p@@two:1", "s:p@@::1:26379", "s:p@@::2:3"]);
    assert!(at(&login).starts_with("app:a/b@"), "{}", at(&login));
    let settings = login.redis_settings();
    assert_eq!((settings.db(), settings.protocol()), (5, redis::ProtocolVersion::RESP3));
    // Sentinels have no databases.
    assert!(named.nodes.iter().all(|node| node.redis_settings().db() == 0));
    let (_, login) = sentinels("redis+sentinel://one/my?db=4").unwrap();
    assert_eq!(login.redis_settings().db(), 4);
    let (named, login) = sentinels("redis+sentinel://one/my").unwrap();
    assert_eq!((at(&named.nodes[0]), at(&login)), (":@one:26379".into(), ":@primary:6379".into()));
}

#[test]
fn a_url_that_lacks_something_says_what() {
    for (url, why) in [
        ("redis+sentinel:///my", "no sentinel was given for the primary \"my\""),
        ("redis+sentinel://", "which primary is meant"),
        ("redis+sentinel://one:26379", "which primary is meant"),
        ("redis+sentinel://one/", "which primary is meant"),
        ("redis+sentinel://:secret@one/my/x", "not the address of a server"),
        ("redis+sentinel://:sec/ret@one/my", "must be percent-encoded"),
        ("redis+sentinel://:secret@one:x/my", "not the address of a server"),
        ("redis+sentinel://one/%zz", "percent-encoded"),
        ("redis+sentinel://one/%+F", "percent-encoded"),
    ] {
        let error = sentinels(url).map(drop).unwrap_err();
        let text = format!("{error:#}");
        assert!(error.kind() == ErrorKind::InvalidInput && text.contains(why), "{url}: {text}");
        assert!(!text.contains("secret"), "{text}");
    }
    assert!(address_at("redis://one/4").unwrap().sentinels.is_none());
}

#[test]
fn all_nodes_of_a_url_are_read() {
    let named = |url: &str| {
        let Address { server: first, nodes, .. } = address_at(url).unwrap();
        let user = first.redis_settings().username().map(str::to_owned);
        (user, nodes.iter().map(Node::to_string).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(named("redis+cluster://a:1"), (None, "a:1".into()));
    assert_eq!(named("redis+cluster://a,b:7000/"), (None, "a:6379 b:7000".into()));
    let (user, nodes) = named("valkey+cluster://u:p%40,x@[::1]:1,b/0?protocol=resp3");
    assert_eq!((user.as_deref(), &*nodes), (Some("u"), "[::1]:1 b:6379"));
    assert!(address_at("redis://a:1").unwrap().nodes.is_empty());
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
        let error = address_at(url).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        let text = format!("{error:#}");
        assert!(text.contains(why) && !text.contains("secret"), "{url}: {text}");
    }
}
