//! The lock as most articles show it, for pitfalls that lie elsewhere: acquired with one command, released
//! with one script that checks the owner.

use std::time::Duration;

use redis::{Connection, RedisResult, cmd};

const GIVE_BACK: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

/// Makes one attempt.
pub fn take(redis: &mut Connection, key: &str, owner: &str, lease: Duration) -> RedisResult<bool> {
    let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let answer: Option<String> = cmd("SET").arg(key).arg(owner).arg("NX").arg("PX").arg(ms).query(redis)?;
    Ok(answer.is_some())
}

/// Releases the lock, and returns whether the owner still held it.
pub fn give_back(redis: &mut Connection, key: &str, owner: &str) -> RedisResult<bool> {
    cmd("EVAL").arg(GIVE_BACK).arg(1).arg(key).arg(owner).query(redis)
}
