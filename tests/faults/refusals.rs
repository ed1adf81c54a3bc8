//! What a server refuses: where nothing waits it is told at once, where something does and it may pass it is
//! waited for, and what is for good is told at once to everybody.

mod connections;
mod passing;
mod red_lock;

use redis_concurrent_testkit::RedisServer;

/// One of several calls that a test makes in turn.
type AskOnce<'a> = &'a dyn Fn() -> Result<(), redis_concurrent::Error>;

fn tell(server: &RedisServer, command: &[&str]) {
    redis::cmd(command[0]).arg(&command[1..]).exec(&mut server.connection().unwrap()).unwrap();
}
