//! The commands on hashes.

use std::collections::BTreeMap;

use super::commands::integer;
use super::keyspace::Keyspace;
use super::reply::{Answer, Reply};
use super::scan::scanned;

type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

fn field(keys: &mut Keyspace, key: &[u8], field: &[u8]) -> Result<Option<Vec<u8>>, String> {
    Ok(keys.get::<Hash>(key)?.and_then(|hash| hash.get(field).cloned()))
}

pub(super) fn get(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    field(keys, &args[1], &args[2]).map(Reply::or_nil)
}

pub(super) fn get_many(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let hash = keys.get::<Hash>(&args[1])?;
    let value = |field| Reply::or_nil(hash.as_ref().and_then(|hash| hash.get(field).cloned()));
    Ok(Reply::List(args[2..].iter().map(value).collect()))
}

pub(super) fn get_all(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let hash = keys.get::<Hash>(&args[1])?;
    Ok(Reply::bulks(hash.into_iter().flatten().flat_map(|(field, value)| [field.clone(), value.clone()])))
}

pub(super) fn exists(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::truth(field(keys, &args[1], &args[2])?.is_some()))
}

pub(super) fn len(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::count(keys.get::<Hash>(&args[1])?.map_or(0, |hash| hash.len())))
}

pub(super) fn scan(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let hash = keys.get::<Hash>(&args[1])?;
    scanned(hash.into_iter().flatten().map(|(field, value)| (&**field, value.clone())), args)
}

pub(super) fn set(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let (pairs, rest) = args[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err("ERR wrong number of arguments for 'hset' command".to_owned());
    }
    let hash = keys.get_or_new::<Hash>(&args[1])?;
    let new = pairs.iter().filter(|[field, value]| hash.insert(field.clone(), value.clone()).is_none());
    Ok(Reply::count(new.count()))
}

pub(super) fn add(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let more = integer(&args[3])?;
    let before = field(keys, &args[1], &args[2])?.map_or(Ok(0), |text| integer(&text));
    let before = before.map_err(|_| "ERR hash value is not an integer")?;
    let n = before.checked_add(more).ok_or("ERR increment or decrement would overflow")?;
    keys.get_or_new::<Hash>(&args[1])?.insert(args[2].clone(), n.to_string().into_bytes());
    Ok(Reply::Int(n))
}

pub(super) fn del(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let Some(hash) = keys.get::<Hash>(&args[1])? else { return Ok(Reply::Int(0)) };
    let n = args[2..].iter().filter(|field| hash.remove(&***field).is_some()).count();
    keys.tidy(&args[1]);
    Ok(Reply::count(n))
}
