//! Addresses that lead nowhere, and databases that no server has.

use redis_concurrent::redis::IntoConnectionInfo;
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
        assert!(error.is_invalid_input() && !error.is_retryable(), "{url:?}: {error:?}");
        assert!(error.to_string().contains("percent-encoded"), "{url:?}: {error}");
        assert!(!format!("{error:?}").contains("cret"), "{error:?}");
    }
    let error = Client::builder().connect().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("url"), "{error}");
}

/// Redis's own words for it name no limit.
#[test]
fn a_database_that_no_server_can_have_is_told_without_asking_one() {
    let info = |number| {
        "redis://127.0.0.1:1/"
            .into_connection_info()
            .unwrap()
            .set_redis_settings(redis::RedisConnectionInfo::default().set_db(number))
    };
    let most = i64::from(i32::MAX);
    for number in [-1, most + 1, i64::MAX] {
        let at = |url: &str| Client::builder().url(&format!("{url}/{number}"));
        for builder in [
            at("redis://127.0.0.1:1"),
            at("redis+sentinel://127.0.0.1:1/master"),
            Client::builder().connection_info(info(number)),
        ] {
            let error = builder.connect_later().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(&format!("between 0 and {most}, got {number}")), "{error}");
        }
    }
    Client::builder().connection_info(info(most)).connect_later().unwrap();
}
