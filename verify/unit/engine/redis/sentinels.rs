//! Unit tests of `src/engine/redis/sentinels.rs`.

use redis::IntoConnectionInfo;

use super::*;

fn of(master: &str) -> SentinelClient {
    let at = |url: &str| url.into_connection_info().unwrap();
    let nodes = vec![at("redis://:secret@one:26379"), at("redis://two:26379")];
    SentinelClient::new(master.into(), nodes, Credentials::default())
}

#[test]
fn a_message_about_another_primary_is_not_ours() {
    let ours = of("my");
    let place = |host: &str, port| Some(Node { host: host.into(), port });
    let [switch, promoted] = CHANNELS;
    assert_eq!(ours.moved(switch, "my 10.0.0.1 6379 10.0.0.2 6380"), place("10.0.0.2", 6380));
    let slave = "slave 10.0.0.2:6380 10.0.0.2 6380 @ my 10.0.0.1 6379";
    assert_eq!(ours.moved(promoted, slave), place("10.0.0.2", 6380));
    assert_eq!(ours.moved("+slave", slave), None);
    for other in ["mymaster 10.0.0.1 6379 10.0.0.2 6380", "my", "my 10.0.0.1 6379", "my a 1 b c", ""] {
        assert_eq!(ours.moved(switch, other), None, "{other:?}");
    }
    assert_eq!(ours.moved(promoted, "slave 10.0.0.2:6380 10.0.0.2 6380 @ mine 10.0.0.1 6379"), None);
}

#[test]
fn a_failover_is_news_once() {
    let ours = of("my");
    let [one, two] = ["one", "two"].map(|host| Node { host: host.into(), port: 1 });
    *ours.known.lock() = Some(one.clone());
    assert!(!ours.is_news(None, &one) && !ours.is_news(Some(&one), &one));
    assert!(ours.is_news(Some(&one), &two));
    // The other sentinels learn of it later, and one that is back has not learned of it yet.
    assert!(!ours.is_news(Some(&one), &two) && !ours.is_news(None, &one));
    assert_eq!(*ours.known.lock(), Some(two.clone()));
    assert!(ours.is_news(Some(&two), &one));
}

#[test]
fn the_one_that_was_right_last_is_asked_first() {
    let ours = of("my");
    assert_eq!(ours.in_order().collect::<Vec<_>>(), [0, 1]);
    ours.first.store(3, Ordering::Relaxed);
    assert_eq!(ours.in_order().collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn what_is_wrong_is_told_of_each_without_a_password() {
    let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));
    let error_of = |one, two| {
        let e = of("my").no_primary(&[(0, one), (1, two)]);
        let text = e.detail().unwrap().to_owned();
        assert!(
            text.contains("\"my\"") && text.contains("one:26379") && text.contains("two:26379"),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
        (e.kind(), text)
    };
    let away = || Why::Away(io(std::io::ErrorKind::ConnectionRefused));
    let unknown = ErrorKind::MasterNameNotFoundBySentinel;
    assert_eq!(error_of(Why::Unknown, away()).0, unknown);
    assert_eq!(error_of(Why::Unknown, Why::NoSentinel).0, unknown);
    assert_eq!(error_of(away(), away()).0, ErrorKind::Client);
    let place = Node { host: "db".into(), port: 1 };
    let (kind, text) = error_of(Why::Replica(place.clone()), Why::Likewise(place));
    assert_eq!(kind, ErrorKind::Client);
    assert!(text.contains("names db:1, which is a replica") && text.ends_with("names db:1, too"), "{text}");
}
