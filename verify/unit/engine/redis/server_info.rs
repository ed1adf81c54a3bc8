//! Unit tests of `src/engine/redis/server_info.rs`.

use super::*;

fn read(reply: &str, received: Moment) -> ServerInfo {
    ServerInfo::read(&Value::BulkString(reply.into()), received)
}

#[test]
fn another_server_is_one_that_says_so() {
    let last = LastServer::default();
    let named = |name: Option<&str>| ServerInfo { run_id: name.map(str::to_owned), ..ServerInfo::default() };
    let at = |n| Moment::default().after(Duration::from_secs(n));
    let run_ids = [None, Some("a"), Some("a"), None, Some("b"), Some("b")];
    let mut when = 0;
    let another = run_ids.map(|name| {
        when += 1;
        last.is_another(&named(name), at(when))
    });
    assert_eq!(another, [None, None, None, None, Some(at(3)), None]);
    last.replied(at(8));
    last.replied(at(7));
    assert_eq!(last.is_another(&named(Some("a")), at(9)), Some(at(8)));
}

#[test]
fn another_server_serves_since_it_was_found() {
    let last = LastServer::default();
    let at = |n| Moment::default().after(Duration::from_secs(n));
    let up_since = |id: Option<&str>, up_since| ServerInfo {
        run_id: id.map(str::to_owned),
        up_since,
        ..ServerInfo::default()
    };
    let found = |id, n| last.is_another(&up_since(Some(id), None), at(n));
    let serves = |id| last.serves_since(&up_since(id, Some(at(1))), at(9));
    let without_uptime = |id| last.serves_since(&up_since(Some(id), None), at(9));
    assert_eq!(serves(Some("a")), at(1), "none was there before");
    found("a", 5);
    assert_eq!((serves(Some("a")), serves(Some("b")), serves(None)), (at(1), at(9), at(1)));
    assert_eq!((without_uptime("a"), without_uptime("b")), (at(5), at(9)));
    found("b", 6);
    assert_eq!((serves(Some("b")), serves(Some("a"))), (at(6), at(9)));
    found("a", 7);
    assert_eq!(serves(Some("a")), at(7), "meanwhile b was asked");
}

#[test]
fn a_role_is_what_the_server_says() {
    let is_primary = |reply: &str| read(reply, Moment::now()).is_primary;
    assert_eq!(is_primary("# Replication\r\nrole:master\r\n"), Some(true));
    assert_eq!(is_primary("# Replication\r\nrole:slave\r\nmaster_port:1\r\n"), Some(false));
    assert_eq!(is_primary(""), None);
}

#[test]
fn it_is_read_and_an_error_tells_nothing() {
    let now = Moment::now();
    let answer = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n";
    let info = read(answer, now);
    assert_eq!(info.run_id.as_deref(), Some("abc"));
    // Five whole seconds mean at least four.
    assert_eq!(info.up_since, Some(now.before(Duration::from_secs(4))));
    for nothing in [Value::Nil, Value::Okay, Value::BulkString("uptime_in_seconds:x".into())] {
        assert_eq!(ServerInfo::read(&nothing, now), ServerInfo::default());
    }
}

#[test]
fn a_past_is_as_long_as_is_certain() {
    let second = Duration::from_secs(1);
    let (sent, received) = (Moment::now(), Moment::now().after(second));
    let past = |role: &str, before: &str| {
        let replication = format!("# Replication\r\nrole:{role}\r\nmaster_replid2:{before}\r\n");
        read(&format!("uptime_in_seconds:5\r\n{replication}"), received)
    };
    let own = past("master", "000");
    assert_eq!((own.up_since, own.its_own), (Some(received.before(4 * second)), true));
    let not_before = ServerInfo::not_before(own.up_since.unwrap(), received.since(sent));
    assert!(sent.before(8 * second) < not_before && not_before <= sent.before(7 * second), "{not_before:?}");
    assert!(!past("slave", "000").its_own);
    assert!(!past("master", "0a0").its_own, "it was promoted");
    assert!(!read("uptime_in_seconds:5\r\n", received).its_own, "it does not say what it is");
}

#[test]
fn a_past_that_no_server_has_is_read() {
    let now = Moment::now();
    let up_since = read(&format!("uptime_in_seconds:{}\r\nrole:master\r\n", u64::MAX), now).up_since;
    let up_since = up_since.unwrap();
    assert!(up_since < now && ServerInfo::not_before(up_since, Duration::MAX) <= up_since, "{up_since:?}");
}

#[test]
fn a_run_is_known_since_it_was_first_heard() {
    let (last, received) = (LastServer::default(), Moment::now());
    let early = received.before(Duration::from_secs(3));
    let a = ServerInfo { run_id: Some("a".into()), ..ServerInfo::default() };
    last.is_another(&a, early);
    last.is_another(&a, received);
    let known_since = [Some("a"), Some("b"), None].map(|run_id| last.known_since(run_id));
    assert_eq!(known_since, [Some(early), None, None]);
}
