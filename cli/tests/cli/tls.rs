//! These tests are built without the feature `tls`, the library's own with it.

use redis_concurrent::Client;

use crate::stage::done;

const URL: &str = "rediss://127.0.0.1:1/";

#[test]
fn the_library_names_the_feature() {
    let error = Client::connect(URL).unwrap_err();
    assert!(error.is_invalid_input(), "{error}");
    assert!(error.to_string().contains("needs the feature `tls` of redis-concurrent"), "{error}");
}

#[test]
fn the_program_names_the_feature() {
    done(URL, &["ls"]).ends(78).says("built with the feature tls");
}
