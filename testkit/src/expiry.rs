//! When a key expires.

use std::time::Duration;

use redis::{Connection, RedisResult};

/// Returns when `key` of the connection's database expires: the time since 1970 by the server's clock, to the
/// millisecond; `None` if the key does not exist or does not expire. Blocks until the server has replied, to
/// a few requests at most if it is busy.
///
/// Only servers from 7.0 on have a command for this, so two values that every server returns are added: the
/// current time and the key's remaining time to live, read within one millisecond.
///
/// # Errors
///
/// If the server does not reply.
pub fn expires_at(connection: &mut Connection, key: &str) -> RedisResult<Option<Duration>> {
    let mut question = redis::pipe();
    question.cmd("TIME").cmd("PTTL").arg(key).cmd("TIME");
    loop {
        let (before, left, after): ((u64, u64), i64, (u64, u64)) = question.query(connection)?;
        let ms = |(s, us): (u64, u64)| Duration::from_millis(s * 1000 + us / 1000);
        let Ok(left) = u64::try_from(left) else { return Ok(None) };
        if ms(before) == ms(after) {
            return Ok(Some(ms(before) + Duration::from_millis(left)));
        }
    }
}
