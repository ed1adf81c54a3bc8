//! Addresses that lead nowhere, and databases that no server has.

use redis_concurrent::{Client, ErrorKind};

use crate::server_days::*;

#[test]
fn what_is_no_url_is_told_without_its_password() {
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1/",
        "redis://",
        "redis://:secret@127.0.0.1:port/",
        "redis://:secret@/0x",
    ] {
        let error = on_time(url, ms(0), || Client::connect(url)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url:?}: {error}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
    }
    // Taken apart as it stands, part of the password would be a port, a database number, a fragment.
    for raw in ["se/cret", "se?cret", "se#cret", "se@/cret", "@se/cret", "6379/0?secret", "6379#secret"] {
        let url = format!("redis://:{raw}@127.0.0.1:1/");
        let error = on_time(&url, ms(0), || Client::connect(&url)).map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && !error.is_retryable(), "{url:?}: {error:?}");
        assert!(error.to_string().contains("percent-encoded"), "{url:?}: {error}");
        assert!(!format!("{error:?}").contains("cret"), "{error:?}");
    }
    let error = Client::builder().connect().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("url"), "{error}");
}

/// What is ignored may have named a database, in which another caller looks for the lock.
#[test]
fn a_part_of_a_url_that_means_nothing_is_told() {
    let at = |url: &str| Client::builder().url(url).connect_later().map(drop);
    for (url, why) in [
        ("redis://127.0.0.1?database=3", "query"),
        ("redis://127.0.0.1?DB=3", "query"),
        ("redis://127.0.0.1?db=3&db=4", "query"),
        ("redis://127.0.0.1/2?db=3", "two databases"),
        ("redis://127.0.0.1?db=", "not a number"),
        ("redis://127.0.0.1?db=secret", "not a number"),
        ("redis://127.0.0.1?db", "query"),
        ("redis://127.0.0.1?password=secret", "query"),
        ("redis://127.0.0.1?secret", "query"),
        ("redis://127.0.0.1/3#insecure", "'#'"),
        ("redis://127.0.0.1/3#secret", "'#'"),
        ("rediss://127.0.0.1/3#secret", "'#'"),
        ("redis+unix:///tmp/s?db=3&password=secret", "query"),
        ("redis+unix:///tmp/s?pass=a&secret", "query"),
        ("redis+unix:///tmp/s#secret", "'#'"),
        ("unix:///tmp/s?database=3", "query"),
        ("redis+sentinel://127.0.0.1/m/2?db=3", "two databases"),
        ("redis+sentinel://127.0.0.1/m?database=3", "query"),
        ("redis+sentinel://127.0.0.1/m#secret", "'#'"),
        ("redis+cluster://127.0.0.1?database=3", "query"),
        ("redis+cluster://127.0.0.1?db=3", "database 0 only"),
    ] {
        let error = at(url).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url:?}: {error}");
        assert!(
            error.to_string().contains(why) && !format!("{error:?}").contains("secret"),
            "{url:?}: {error:?}"
        );
    }
    let database = |url: &str| {
        let infos = Client::builder().url(url).connect_later().unwrap().primaries().unwrap();
        infos[0].redis_settings().db()
    };
    for url in [
        "redis://127.0.0.1?db=3",
        "redis://127.0.0.1/?db=3&protocol=resp3",
        "redis://:p@127.0.0.1:1/3?db=3",
        "redis://127.0.0.1/3/",
        "redis+unix:///tmp/s?db=3",
        "rediss://127.0.0.1?db=3#insecure",
    ] {
        assert_eq!(database(url), 3, "{url}");
    }
}

/// Redis's own words for it name no limit.
#[test]
fn a_database_that_no_server_can_have_is_told_without_asking_one() {
    let most = i64::from(i32::MAX);
    for number in [-1, most + 1, i64::MAX] {
        let at = |url: &str| Client::builder().url(&format!("{url}/{number}"));
        for builder in [at("redis://127.0.0.1:1"), at("redis+sentinel://127.0.0.1:1/master")] {
            let error = builder.connect_later().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(&format!("between 0 and {most}, got {number}")), "{error}");
        }
    }
    Client::builder().url(&format!("redis://127.0.0.1:1/{most}")).connect_later().unwrap();
}
