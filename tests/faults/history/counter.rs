//! What the locks protect: counters on a server of their own, which no fault reaches.
//!
//! A counter that is guarded takes a token only if it has seen none that is higher. It looks at it
//! when it is *read*, too: otherwise a late write under an old token could fall between the
//! reading and the writing of the next holder, and be lost under it.

use redis::{Connection, RedisResult, Script};
use redis_concurrent_testkit::RedisServer;

/// Tokens are beyond what Lua's numbers tell apart: they are compared as text with zeros in front.
/// Each write that is taken is listed in the same step, so that no accepted write goes uncounted
/// when its process is killed.
const TOUCH: &str = r"
local guarded, token, read = ARGV[1] == '1', ARGV[2], ARGV[3]
if guarded then
  if token < (redis.call('HGET', KEYS[1], 'highest') or '') then return -1 end
  redis.call('HSET', KEYS[1], 'highest', token)
end
if not read then return tonumber(redis.call('HGET', KEYS[1], 'value') or 0) end
redis.call('HSET', KEYS[1], 'value', read + 1)
redis.call('RPUSH', KEYS[1] .. ':writes', token .. ' ' .. read)
return 1
";

/// A connection to the counters.
pub struct Counter {
    connection: Connection,
    script: Script,
    guarded: bool,
}

impl Counter {
    pub fn connect(url: &str, guarded: bool) -> RedisResult<Self> {
        let connection = redis::Client::open(url)?.get_connection()?;
        Ok(Counter { connection, script: Script::new(TOUCH), guarded })
    }

    /// The counter's value; `None` if the token is refused.
    pub fn read(&mut self, name: &str, token: u64) -> Option<u64> {
        self.touch(name, token, None)
    }

    /// Sets it to one more than was read. Returns whether the token was taken.
    pub fn write(&mut self, name: &str, token: u64, read: u64) -> bool {
        self.touch(name, token, Some(read)).is_some()
    }

    fn touch(&mut self, name: &str, token: u64, read: Option<u64>) -> Option<u64> {
        let mut call = self.script.key(name);
        call.arg(u8::from(self.guarded)).arg(format!("{token:020}"));
        if let Some(read) = read {
            call.arg(read);
        }
        let answer: i64 = call.invoke(&mut self.connection).unwrap();
        answer.try_into().ok()
    }
}

/// A counter as it stands.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub name: String,
    pub value: u64,
    /// The writes that were taken: the token, and the value that had been read.
    pub writes: Vec<(u64, u64)>,
}

impl Tally {
    pub fn of(server: &RedisServer, name: &str) -> Self {
        let mut connection = server.connection().unwrap();
        let value: Option<u64> = redis::cmd("HGET").arg(name).arg("value").query(&mut connection).unwrap();
        let key = format!("{name}:writes");
        let writes: Vec<String> =
            redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query(&mut connection).unwrap();
        let write = |text: &String| {
            let (token, read) = text.split_once(' ').unwrap();
            (token.parse().unwrap(), read.parse().unwrap())
        };
        Tally { name: name.into(), value: value.unwrap_or(0), writes: writes.iter().map(write).collect() }
    }
}

#[test]
fn a_guarded_counter_takes_no_old_token() {
    let server = RedisServer::start().unwrap();
    // Neighbours that a double cannot tell apart.
    let (old, new) = ((1 << 60) + 1, (1 << 60) + 2);
    let mut counter = Counter::connect(&server.url(), true).unwrap();
    assert_eq!(counter.read("x", old), Some(0));
    assert_eq!(counter.read("x", new), Some(0));
    assert!(!counter.write("x", old, 0));
    assert!(counter.write("x", new, 0));
    assert_eq!(counter.read("x", old), None);
    let tally = Tally::of(&server, "x");
    assert_eq!((tally.value, tally.writes), (1, vec![(new, 0)]));
}
