//! The commands on sorted sets.

use super::commands::{SYNTAX, integer, is};
use super::keyspace::Keyspace;
use super::reply::{Answer, Reply};
use super::scan::scanned;
use super::sorted::{Score, Sorted};

const NOT_A_FLOAT: &str = "ERR value is not a valid float";

fn number(text: &[u8]) -> Result<Score, String> {
    Score::parse(text).ok_or_else(|| NOT_A_FLOAT.to_owned())
}

fn sorted<'a>(keys: &'a mut Keyspace, args: &[Vec<u8>]) -> Result<Option<&'a Sorted>, String> {
    Ok(keys.get::<Sorted>(&args[1])?.map(|sorted| &*sorted))
}

pub(super) fn add(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let only_new = is(&args[2], "NX");
    let (pairs, rest) = args[2 + usize::from(only_new)..].as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return Err(SYNTAX.to_owned());
    }
    let pairs: Vec<_> =
        pairs.iter().map(|[score, member]| number(score).map(|s| (s, member))).collect::<Result<_, _>>()?;
    let sorted = keys.get_or_new::<Sorted>(&args[1])?;
    let mut new = 0;
    for (score, member) in pairs {
        if !only_new || sorted.score(member).is_none() {
            new += i64::from(sorted.set(member, score));
        }
    }
    Ok(Reply::Int(new))
}

pub(super) fn increase(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let by = number(&args[2])?;
    let sorted = keys.get_or_new::<Sorted>(&args[1])?;
    let score = Score(by.0 + sorted.score(&args[3]).map_or(0.0, |score| score.0));
    sorted.set(&args[3], score);
    Ok(Reply::bulk(score.text()))
}

pub(super) fn len(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    Ok(Reply::count(sorted(keys, args)?.map_or(0, Sorted::len)))
}

pub(super) fn score(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let score = sorted(keys, args)?.and_then(|sorted| sorted.score(&args[2]));
    Ok(Reply::or_nil(score.map(Score::text)))
}

pub(super) fn rank(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let rank = sorted(keys, args)?.and_then(|sorted| sorted.rank(&args[2]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn remove(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let Some(sorted) = keys.get::<Sorted>(&args[1])? else { return Ok(Reply::Int(0)) };
    let n = args[2..].iter().filter(|member| sorted.remove(member)).count();
    keys.tidy(&args[1]);
    Ok(Reply::count(n))
}

pub(super) fn scan(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let sorted = sorted(keys, args)?;
    let all = sorted.into_iter().flat_map(Sorted::iter);
    scanned(all.map(|(member, score)| (member, score.text().into_bytes())), args)
}

/// One end of a range: whether it belongs to it, and where it is.
struct End<T>(bool, T);

fn end_by_score(text: &[u8]) -> Result<End<Score>, String> {
    let (belongs, text) = text.strip_prefix(b"(").map_or((true, text), |text| (false, text));
    let score = Score::parse(text).ok_or("ERR min or max is not a float")?;
    Ok(End(belongs, score))
}

/// The members between these scores, in their order.
fn between<'a>(sorted: Option<&'a Sorted>, min: &[u8], max: &[u8]) -> Result<Vec<(&'a [u8], Score)>, String> {
    let (End(from_it, min), End(to_it, max)) = (end_by_score(min)?, end_by_score(max)?);
    let is_in =
        |score: Score| (score > min || from_it && score == min) && (score < max || to_it && score == max);
    Ok(sorted.into_iter().flat_map(Sorted::iter).filter(|(_, score)| is_in(*score)).collect())
}

pub(super) fn count(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    between(sorted(keys, args)?, &args[2], &args[3]).map(|all| Reply::count(all.len()))
}

pub(super) fn remove_by_score(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let gone = between(sorted(keys, args)?, &args[2], &args[3])?;
    let gone: Vec<_> = gone.into_iter().map(|(member, _)| member.to_vec()).collect();
    if let Some(sorted) = keys.get::<Sorted>(&args[1])? {
        gone.iter().for_each(|member| {
            sorted.remove(member);
        });
    }
    keys.tidy(&args[1]);
    Ok(Reply::count(gone.len()))
}

pub(super) fn range(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    let (mut by_score, mut scores, mut limit) = (false, false, None);
    let mut options = args[4..].iter();
    while let Some(option) = options.next() {
        match () {
            () if is(option, "BYSCORE") => by_score = true,
            () if is(option, "WITHSCORES") => scores = true,
            () if is(option, "LIMIT") => limit = Some(limit_of(&mut options)?),
            () => return Err(SYNTAX.to_owned()),
        }
    }
    if limit.is_some() && !by_score {
        return Err(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into()
        );
    }
    let found = match by_score {
        true => limited(between(sorted(keys, args)?, &args[2], &args[3])?, limit),
        false => {
            let (from, to) = (integer(&args[2])?, integer(&args[3])?);
            by_index(sorted(keys, args)?, from, to)
        }
    };
    let found = found.into_iter().flat_map(|(member, score)| {
        [Some(member.to_vec()), scores.then(|| score.text().into_bytes())].into_iter().flatten()
    });
    Ok(Reply::bulks(found))
}

fn by_index(sorted: Option<&Sorted>, from: i64, to: i64) -> Vec<(&[u8], Score)> {
    let Some(sorted) = sorted else { return Vec::new() };
    let all = i64::try_from(sorted.len()).expect("few");
    let at = |i: i64| usize::try_from(if i < 0 { i + all } else { i }.max(0)).expect("not negative");
    let end = if to < -all { 0 } else { at(to) + 1 };
    sorted.iter().take(end).skip(at(from)).collect()
}

/// Reads the offset and the number behind `LIMIT`.
fn limit_of<'a>(options: &mut impl Iterator<Item = &'a Vec<u8>>) -> Result<(i64, i64), String> {
    let mut next = || options.next().ok_or_else(|| SYNTAX.to_owned()).and_then(|text| integer(text));
    Ok((next()?, next()?))
}

fn limited<T>(all: Vec<T>, limit: Option<(i64, i64)>) -> Vec<T> {
    let Some((skip, most)) = limit else { return all };
    let Ok(skip) = usize::try_from(skip) else { return Vec::new() };
    all.into_iter().skip(skip).take(usize::try_from(most).unwrap_or(usize::MAX)).collect()
}

/// `None`: at the very end in this direction.
fn end_by_lex(text: &[u8]) -> Result<End<Option<&[u8]>>, String> {
    match text {
        b"-" | b"+" => Ok(End(true, None)),
        [b'[', rest @ ..] => Ok(End(true, Some(rest))),
        [b'(', rest @ ..] => Ok(End(false, Some(rest))),
        _ => Err("ERR min or max not valid string range item".to_owned()),
    }
}

fn lex(keys: &mut Keyspace, args: &[Vec<u8>], (min, max): (usize, usize), backwards: bool) -> Answer {
    let (End(from_it, min), End(to_it, max)) = (end_by_lex(&args[min])?, end_by_lex(&args[max])?);
    let limit = match &args[4..] {
        [] => None,
        [word, rest @ ..] if is(word, "LIMIT") => Some(limit_of(&mut rest.iter())?),
        _ => return Err(SYNTAX.to_owned()),
    };
    let below = |member: &[u8]| min.is_some_and(|min| member < min || !from_it && member == min);
    let above = |member: &[u8]| max.is_some_and(|max| member > max || !to_it && member == max);
    let all: Vec<_> =
        sorted(keys, args)?.into_iter().flat_map(Sorted::iter).map(|(member, _)| member).collect();
    // Where scores differ, the order is not that of the members. Redis then returns what it comes across.
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Ok(Reply::List(Vec::new())) };
    let found = match backwards {
        _ if above(first) || below(last) => Vec::new(),
        false => all.into_iter().skip_while(|it| below(it)).take_while(|it| !above(it)).collect(),
        true => all.into_iter().rev().skip_while(|it| above(it)).take_while(|it| !below(it)).collect(),
    };
    Ok(Reply::bulks(limited(found, limit)))
}

pub(super) fn by_lex(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    lex(keys, args, (2, 3), false)
}

pub(super) fn by_lex_backwards(keys: &mut Keyspace, args: &[Vec<u8>]) -> Answer {
    lex(keys, args, (3, 2), true)
}
