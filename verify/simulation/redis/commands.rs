//! The commands that the scripts and the library use, on keys: those on hashes and sorted sets are in files of their own.

use super::keyspace::{Data, Entry, Keyspace};
use super::reply::{Answer, Reply};
use super::{hashes, sorted_sets};

pub(super) const SYNTAX: &str = "ERR syntax error";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

type Command = fn(&mut Keyspace, &[Vec<u8>]) -> Answer;

/// What Redis says about a command.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) run: Command,
    /// How many words it has at least, its own name included.
    pub(super) words: usize,
    pub(super) writes: bool,
    /// Refused when the memory is full.
    pub(super) grows: bool,
}

pub(super) fn known(name: &[u8]) -> Option<Known> {
    let reads = |run: Command, words| Known { run, words, writes: false, grows: false };
    let writes = |run, words| Known { writes: true, ..reads(run, words) };
    let grows = |run, words| Known { grows: true, ..writes(run, words) };
    Some(match name {
        b"GET" => reads(get, 2),
        b"SET" => grows(set, 3),
        b"INCR" => grows(incr, 2),
        b"DEL" | b"UNLINK" => writes(del, 2),
        b"EXISTS" => reads(exists, 2),
        b"TYPE" => reads(kind, 2),
        b"PTTL" => reads(pttl, 2),
        b"PEXPIRE" => writes(pexpire, 3),
        b"PERSIST" => writes(persist, 2),
        b"HGET" => reads(hashes::get, 3),
        b"HMGET" => reads(hashes::get_many, 3),
        b"HGETALL" => reads(hashes::get_all, 2),
        b"HEXISTS" => reads(hashes::exists, 3),
        b"HLEN" => reads(hashes::len, 2),
        b"HSCAN" => reads(hashes::scan, 3),
        b"HSET" => grows(hashes::set, 4),
        b"HINCRBY" => grows(hashes::add, 4),
        b"HDEL" => writes(hashes::del, 3),
        b"ZADD" => grows(sorted_sets::add, 4),
        b"ZINCRBY" => grows(sorted_sets::increase, 4),
        b"ZCARD" => reads(sorted_sets::len, 2),
        b"ZCOUNT" => reads(sorted_sets::count, 4),
        b"ZSCORE" => reads(sorted_sets::score, 3),
        b"ZRANK" => reads(sorted_sets::rank, 3),
        b"ZRANGE" => reads(sorted_sets::range, 4),
        b"ZRANGEBYLEX" => reads(sorted_sets::by_lex, 4),
        b"ZREVRANGEBYLEX" => reads(sorted_sets::by_lex_backwards, 4),
        b"ZSCAN" => reads(sorted_sets::scan, 3),
        b"ZREM" => writes(sorted_sets::remove, 3),
        b"ZREMRANGEBYSCORE" => writes(sorted_sets::remove_by_score, 4),
        _ => return None,
    })
}

pub(super) fn integer(text: &[u8]) -> Result<i64, String> {
    let text = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| text.parse().ok()).ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

/// Whether a word of a command is this option.
pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

fn get(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::or_nil(keys.get::<Vec<u8>>(&args[1])?.cloned()))
}

fn set(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let (mut expires, mut keeps, mut gives, mut only_new) = (None, false, false, false);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let mut number = || options.next().ok_or_else(|| SYNTAX.to_owned()).and_then(|text| integer(text));
        match option.to_ascii_uppercase().as_slice() {
            b"PX" => expires = Some((number()?, keys.now)),
            b"PXAT" => expires = Some((number()?, 0)),
            b"KEEPTTL" => keeps = true,
            b"GET" => gives = true,
            b"NX" => only_new = true,
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    if expires.is_some_and(|(ms, _)| ms <= 0) {
        return Err("ERR invalid expire time in 'set' command".to_owned());
    }
    let before = if gives { keys.get::<Vec<u8>>(&args[1])?.cloned() } else { None };
    let there = keys.entry(&args[1]);
    if only_new && there.is_some() {
        return Ok(Reply::or_nil(before));
    }
    let kept = there.filter(|_| keeps).and_then(|entry| entry.expires);
    let expires = expires.map(|(ms, from)| ms + from).or(kept);
    keys.keys.insert(args[1].clone(), Entry { data: Data::Text(args[2].clone()), expires });
    Ok(if gives { Reply::or_nil(before) } else { Reply::ok() })
}

fn incr(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let before = keys.get::<Vec<u8>>(&args[1])?.map_or(Ok(0), |text| integer(text))?;
    let n = before.checked_add(1).ok_or("ERR increment or decrement would overflow")?;
    *keys.get_or_new(&args[1])? = n.to_string().into_bytes();
    Ok(Reply::Int(n))
}

fn del(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::count(args[1..].iter().filter(|key| keys.remove(key)).count()))
}

fn exists(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::count(args[1..].iter().filter(|key| keys.entry(key).is_some()).count()))
}

fn kind(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::Status(keys.entry(&args[1]).map_or("none", |entry| entry.data.kind()).to_owned()))
}

fn pttl(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let now = keys.now;
    let left = keys.entry(&args[1]).map(|entry| entry.expires.map_or(-1, |ends| (ends - now).max(0)));
    Ok(Reply::Int(left.unwrap_or(-2)))
}

fn pexpire(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let (ms, now) = (integer(&args[2])?, keys.now);
    let Some(entry) = keys.entry(&args[1]) else { return Ok(Reply::Int(0)) };
    entry.expires = Some(ms + now);
    if ms <= 0 {
        keys.keys.remove(&args[1]);
    }
    Ok(Reply::Int(1))
}

fn persist(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let entry = keys.entry(&args[1]);
    Ok(Reply::truth(entry.is_some_and(|entry| entry.expires.take().is_some())))
}
