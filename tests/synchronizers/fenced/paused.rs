//! A holder that is stopped for longer than its lease, and goes on.

use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent};

use crate::support::*;

const ROLE: &str = "fenced::paused::role_holder";

#[test]
fn a_paused_holder_s_write_is_refused_when_it_goes_on() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let (lock, it) = (client.reentrant_lock("it"), client.fenced("it"));
    let mut holder = Child::spawn(ROLE, &[("SERVER", &server.url())]).unwrap();
    assert_eq!(holder.read_line_within(LONG).unwrap(), "wrote");
    holder.stop().unwrap();
    let guard = lock.try_lock_for(LONG).unwrap().expect("its lease ends");
    it.set(guard.token(), "the second's").unwrap();
    holder.cont().unwrap();
    holder.say("go on").unwrap();
    let line = holder.read_line_within(LONG).unwrap();
    assert!(line.contains("conflict") && line.contains(&guard.token().to_string()), "{line}");
    assert_eq!(it.get::<String>().unwrap().as_deref(), Some("the second's"));
    guard.unlock().unwrap();
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_holder() {
    if !is_role(ROLE) {
        return;
    }
    let client = Client::builder().url(&std::env::var("SERVER").unwrap()).lease(ms(1000)).connect().unwrap();
    let (lock, it) = (client.reentrant_lock("it"), client.fenced("it"));
    let guard = lock.lock().unwrap();
    it.set(guard.token(), "the first's").unwrap();
    tell_parent("wrote").unwrap();
    // Here it is stopped. It does not look whether it has lost its hold.
    hear_parent().unwrap();
    let error = it.set(guard.token(), "too late").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    tell_parent(&error.to_string()).unwrap();
}
