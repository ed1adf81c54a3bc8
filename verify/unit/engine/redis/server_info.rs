//! Unit tests of `src/engine/redis/server_info.rs`.

use super::*;

#[test]
fn another_server_is_one_that_says_so() {
    let last = LastServer::default();
    let named = |name: Option<&str>| ServerInfo { run_id: name.map(str::to_owned), up_since: None };
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
    let found = |id: &str, n| {
        last.is_another(&ServerInfo { run_id: Some(id.to_owned()), up_since: None }, at(n));
    };
    let serves = |id| last.serves_since(id, at(1), at(9));
    assert_eq!(serves(Some("a")), at(1), "none was there before");
    found("a", 5);
    assert_eq!((serves(Some("a")), serves(Some("b")), serves(None)), (at(1), at(9), at(1)));
    found("b", 6);
    assert_eq!((serves(Some("b")), serves(Some("a"))), (at(6), at(9)));
    found("a", 7);
    assert_eq!(serves(Some("a")), at(7), "meanwhile b was asked");
}

#[test]
fn a_role_is_what_the_server_says() {
    let role = |reply: &str| Role::read(&Value::BulkString(reply.into()));
    assert_eq!(role("# Replication\r\nrole:master\r\n"), Some(Role::Primary));
    assert_eq!(role("# Replication\r\nrole:slave\r\nmaster_port:1\r\n"), Some(Role::Replica));
    assert_eq!((role(""), Role::read(&Value::Nil)), (None, None));
}

#[test]
fn it_is_read_and_an_error_tells_nothing() {
    let now = Moment::now();
    let answer = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:5\r\n";
    let info = ServerInfo::read(&Value::BulkString(answer.into()), now);
    assert_eq!(info.run_id.as_deref(), Some("abc"));
    // Five whole seconds mean at least four.
    assert_eq!(info.up_since, Some(now.before(Duration::from_secs(4))));
    for nothing in [Value::Nil, Value::Okay, Value::BulkString("uptime_in_seconds:x".into())] {
        assert_eq!(ServerInfo::read(&nothing, now), ServerInfo::default());
        assert_eq!(History::read(&nothing, now, now, &LastServer::default()), None);
    }
}

#[test]
fn a_past_is_as_long_as_is_certain() {
    let second = Duration::from_secs(1);
    let (sent, received) = (Moment::now(), Moment::now().after(second));
    let past = |role: &str, before: &str| {
        let answer =
            format!("uptime_in_seconds:5\r\n# Replication\r\nrole:{role}\r\nmaster_replid2:{before}\r\n");
        History::read(&Value::BulkString(answer.into()), sent, received, &LastServer::default()).unwrap()
    };
    let (up_since, not_before) = (received.before(4 * second), sent.before(7 * second));
    assert_eq!(
        past("master", "000"),
        History { served_since: received, up_since, not_before, its_own: true },
        "it may have been elsewhere"
    );
    assert!(!past("slave", "000").its_own);
    assert!(!past("master", "0a0").its_own, "it was promoted");
}

#[test]
fn a_past_that_no_server_has_is_read() {
    let answer = format!("uptime_in_seconds:{}\r\nrole:master\r\n", u64::MAX);
    let now = Moment::now();
    let past = History::read(&Value::BulkString(answer.into()), now, now, &LastServer::default()).unwrap();
    assert!(past.up_since < now && past.not_before <= past.up_since, "{past:?}");
}

#[test]
fn one_that_was_heard_of_before_has_been_up_since() {
    let (last, received) = (LastServer::default(), Moment::now());
    let early = received.before(Duration::from_secs(3));
    let a = ServerInfo { run_id: Some("a".into()), up_since: None };
    last.is_another(&a, early);
    last.is_another(&a, received);
    let up_since = |run_id: &str, uptime: u64| {
        let answer = format!("run_id:{run_id}\r\nuptime_in_seconds:{uptime}\r\nrole:master\r\n");
        History::read(&Value::BulkString(answer.into()), received, received, &last).unwrap().up_since
    };
    assert_eq!(up_since("a", 0), early);
    assert_eq!(up_since("a", 9), received.before(Duration::from_secs(8)));
    assert_eq!(up_since("b", 0), received, "a start of its own");
    assert_eq!(up_since("b", 9), received.before(Duration::from_secs(8)));
}
