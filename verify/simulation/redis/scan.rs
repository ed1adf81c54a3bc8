//! The cursors of `HSCAN` and `ZSCAN`. As in Redis, what is small is returned at once, and of the rest what is there
//! all the time is returned at least once: a cursor is the hash of the first element that was not returned.

use std::hash::{DefaultHasher, Hasher};

use super::commands::{SYNTAX, integer, is};
use super::reply::{Answer, Reply};

/// Up to this many elements are small, as by Redis's own default.
const SMALL: usize = 128;

fn place(element: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(element);
    // Cursor 0 is the beginning.
    hasher.finish() >> 1 | 1
}

/// Whether an element is one of `pattern`: a text with a `*` at its end, or none.
fn matches(pattern: Option<&[u8]>, element: &[u8]) -> bool {
    pattern.is_none_or(|pattern| match pattern.split_last() {
        Some((b'*', start)) => element.starts_with(start),
        _ => element == pattern,
    })
}

/// The reply to a scan of these elements with their values.
pub(super) fn scanned<'a>(all: impl Iterator<Item = (&'a [u8], Vec<u8>)>, args: &[Vec<u8>]) -> Answer {
    let cursor = std::str::from_utf8(&args[2]).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut count, mut pattern) = (10, None);
    let (options, rest) = args[3..].as_chunks::<2>();
    for [option, value] in options {
        match () {
            () if is(option, "COUNT") => count = usize::try_from(integer(value)?).unwrap_or(0),
            () if is(option, "MATCH") => pattern = Some(&**value),
            () => return Err(SYNTAX.to_owned()),
        }
    }
    if !rest.is_empty() || count == 0 {
        return Err(SYNTAX.to_owned());
    }
    let mut all: Vec<_> = all.map(|(element, value)| (place(element), element, value)).collect();
    let mut next = 0;
    if all.len() > SMALL {
        all.sort();
        all.retain(|(place, ..)| *place >= cursor);
        // Those in one place are never parted.
        let mut end = count.min(all.len());
        while end < all.len() && end > 0 && all[end].0 == all[end - 1].0 {
            end += 1;
        }
        next = all.get(end).map_or(0, |(place, ..)| *place);
        all.truncate(end);
    }
    all.retain(|(_, element, _)| matches(pattern, element));
    let found = all.into_iter().flat_map(|(_, element, value)| [element.to_vec(), value]);
    Ok(Reply::List(vec![Reply::bulk(next.to_string()), Reply::bulks(found)]))
}
