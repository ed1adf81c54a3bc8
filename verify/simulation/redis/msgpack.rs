//! `cmsgpack`, as far as the scripts use it: numbers, text, truth values, and tables of these.

use mlua::{Lua, Table, Value};

fn wrong(what: &str) -> mlua::Error {
    mlua::Error::runtime(what)
}

/// Appends what `cmsgpack.pack` makes of a value.
pub(super) fn pack(value: &Value, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::Nil => out.push(0xc0),
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(n) => pack_integer(*n, out),
        // As there, a whole number is written as one, and a number that a float can hold as a float.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(n) => match *n {
            n if n == n.trunc() && n.abs() < 9.2e18 => pack_integer(n as i64, out),
            n if f64::from(n as f32) == n => {
                out.push(0xca);
                out.extend((n as f32).to_be_bytes());
            }
            n => {
                out.push(0xcb);
                out.extend(n.to_be_bytes());
            }
        },
        Value::String(text) => {
            let bytes = text.as_bytes();
            pack_length(bytes.len(), (0xa0, 32), [Some(0xd9), Some(0xda), Some(0xdb)], out);
            out.extend_from_slice(&bytes);
        }
        Value::Table(table) => pack_table(table, out)?,
        other => return Err(wrong(&format!("cmsgpack: a {}", other.type_name()))),
    }
    Ok(())
}

fn pack_integer(n: i64, out: &mut Vec<u8>) {
    let (tag, bytes) = match n {
        -32..=127 => return out.push(n.to_be_bytes()[7]),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..=-33 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(tag);
    out.extend_from_slice(&n.to_be_bytes()[8 - bytes..]);
}

/// Appends a length: in its tag if it is below that limit, else behind a tag for one, two or four bytes.
fn pack_length(n: usize, (tag, below): (u8, usize), tags: [Option<u8>; 3], out: &mut Vec<u8>) {
    if n < below {
        return out.push(tag | n.to_be_bytes()[7]);
    }
    let bytes = if n <= 0xff && tags[0].is_some() { 1 } else { [2, 4][usize::from(n > 0xffff)] };
    out.push(tags[bytes / 2].expect("a tag"));
    out.extend_from_slice(&n.to_be_bytes()[8 - bytes..]);
}

fn pack_table(table: &Table, out: &mut Vec<u8>) -> mlua::Result<()> {
    let pairs: Vec<(Value, Value)> = table.pairs().collect::<mlua::Result<_>>()?;
    #[allow(clippy::cast_possible_wrap)]
    let all = pairs.len() as i64;
    let is_index = |key: &Value| key.as_integer().is_some_and(|i| (1..=all).contains(&i));
    if pairs.iter().all(|(key, _)| is_index(key)) {
        pack_length(pairs.len(), (0x90, 16), [None, Some(0xdc), Some(0xdd)], out);
        return (1..=all).try_for_each(|i| pack(&table.raw_get(i)?, out));
    }
    pack_length(pairs.len(), (0x80, 16), [None, Some(0xde), Some(0xdf)], out);
    pairs.iter().try_for_each(|(key, value)| {
        pack(key, out)?;
        pack(value, out)
    })
}

/// Removes the first value from what was packed.
pub(super) fn unpack(lua: &Lua, bytes: &mut &[u8]) -> mlua::Result<Value> {
    let tag = take(bytes, 1)?[0];
    let number = |bytes: &mut &[u8], n: usize| {
        take(bytes, n).map(|it| it.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    #[allow(clippy::cast_precision_loss)]
    let value = |n: u64| Value::Number(n as f64);
    #[allow(clippy::cast_possible_wrap, clippy::cast_precision_loss)]
    let signed = |n: u64, bits: u32| Value::Number((((n << (64 - bits)) as i64) >> (64 - bits)) as f64);
    let length = |bytes: &mut &[u8], n: usize| number(bytes, n).map(|it| it as usize);
    Ok(match tag {
        0x00..=0x7f => value(tag.into()),
        0xe0..=0xff => signed(tag.into(), 8),
        0xc0 => Value::Nil,
        0xc2 => Value::Boolean(false),
        0xc3 => Value::Boolean(true),
        0xca => Value::Number(f32::from_be_bytes(take(bytes, 4)?.try_into().expect("4")).into()),
        0xcb => Value::Number(f64::from_be_bytes(take(bytes, 8)?.try_into().expect("8"))),
        0xcc..=0xcf => value(number(bytes, 1 << (tag - 0xcc))?),
        0xd0..=0xd3 => signed(number(bytes, 1 << (tag - 0xd0))?, 8 << (tag - 0xd0)),
        0xa0..=0xbf => text(lua, bytes, (tag & 0x1f).into())?,
        0xd9..=0xdb => {
            let n = length(bytes, 1 << (tag - 0xd9))?;
            text(lua, bytes, n)?
        }
        0x90..=0x9f => list(lua, bytes, (tag & 0xf).into())?,
        0xdc | 0xdd => {
            let n = length(bytes, 2 << (tag - 0xdc))?;
            list(lua, bytes, n)?
        }
        0x80..=0x8f => map(lua, bytes, (tag & 0xf).into())?,
        0xde | 0xdf => {
            let n = length(bytes, 2 << (tag - 0xde))?;
            map(lua, bytes, n)?
        }
        _ => return Err(wrong("Bad data format in input.")),
    })
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> mlua::Result<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n).ok_or_else(|| wrong("Missing bytes in input."))?;
    *bytes = rest;
    Ok(taken)
}

fn text(lua: &Lua, bytes: &mut &[u8], n: usize) -> mlua::Result<Value> {
    lua.create_string(take(bytes, n)?).map(Value::String)
}

fn list(lua: &Lua, bytes: &mut &[u8], n: usize) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for i in 1..=n {
        table.raw_set(i, unpack(lua, bytes)?)?;
    }
    Ok(Value::Table(table))
}

fn map(lua: &Lua, bytes: &mut &[u8], n: usize) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for _ in 0..n {
        table.raw_set(unpack(lua, bytes)?, unpack(lua, bytes)?)?;
    }
    Ok(Value::Table(table))
}
