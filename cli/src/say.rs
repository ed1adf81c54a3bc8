//! The program's own output: messages on standard error, each line with its name, and answers on standard
//! output.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use redis_concurrent::admin::printable;
use serde_json::Value;

use crate::exit::Failure;

/// A column of a table is not shortened to less.
const LEAST: usize = 12;

/// Which messages are printed.
#[derive(Clone, Copy, Debug)]
pub struct Say {
    quiet: bool,
    verbose: bool,
}

impl Say {
    pub fn new(quiet: bool, verbose: bool) -> Say {
        Say { quiet, verbose }
    }

    /// Prints what the caller should know.
    pub fn note(self, what: impl Display) {
        if !self.quiet {
            error(what);
        }
    }

    /// Whether to print what someone at a terminal would ask next.
    pub fn hints(self) -> bool {
        !self.quiet && (self.verbose || io::stderr().is_terminal())
    }

    /// Prints what the program is doing.
    pub fn detail(self, what: impl Display) {
        if self.verbose {
            error(what);
        }
    }
}

/// Prints to standard error, line by line; a closed standard error is no reason to fail.
pub fn error(what: impl Display) {
    let text = what.to_string();
    let mut out = io::stderr().lock();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let _ = writeln!(out, "redis-concurrent: {}", printable(line));
    }
}

/// Prints a line of an answer.
pub fn answer(line: impl Display) -> Result<(), Failure> {
    print(format!("{}\n", printable(&line.to_string())).as_bytes())
}

/// Prints JSON objects, one per line.
pub fn objects(objects: impl IntoIterator<Item = Value>) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let escaped = |it: Value| {
        // JSON's own escapes, for what a terminal would obey.
        let escape = |c: char| {
            let is_plain = printable(c.encode_utf8(&mut [0; 4])).chars().eq([c]);
            if is_plain { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) }
        };
        it.to_string().chars().map(escape).collect::<String>()
    };
    let mut objects = objects.into_iter().map(escaped);
    let written = objects.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    written.map_err(|e| Failure::unwritten(&e))
}

/// Prints columns that are as wide as their widest cell, except that those of `cut` are shortened, one after the
/// other, to what fits into the width of a terminal.
pub fn table<const N: usize>(rows: impl Iterator<Item = [String; N]>, cut: &[usize]) -> Result<(), Failure> {
    let mut rows: Vec<_> = rows.map(|row| row.map(|cell| printable(&cell))).collect();
    if let Some(terminal) = terminal_width() {
        for i in cut {
            let others: usize = (0..N).filter(|other| other != i).map(|other| width(&rows, other) + 2).sum();
            let left = terminal.saturating_sub(others).max(LEAST);
            rows.iter_mut().for_each(|row| row[*i] = shortened(&row[*i], left));
        }
    }
    let widths: [usize; N] = std::array::from_fn(|i| width(&rows, i));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    print(text.as_bytes())
}

fn width<const N: usize>(rows: &[[String; N]], column: usize) -> usize {
    rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
}

/// Returns the width of the terminal that standard output is; `None` if it is none.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Cuts a text that is longer than `width` characters.
pub fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Prints a whole answer.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|e| Failure::unwritten(&e))
}

/// Returns the text without the passwords of the URLs in it.
pub fn without_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || c == '\'' || c == '"').unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        let address = match url.rfind('@') {
            Some(at) => {
                out.push_str("***");
                // The `@` is in a password after the hosts.
                if url[..at].contains('?') { "" } else { &url[at..] }
            }
            None => url,
        };
        // `pass` of a socket, `sentinel_password` of sentinels.
        let (address, query) = address.split_once('?').unwrap_or((address, ""));
        out.push_str(address);
        for (i, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
            out.push(if i == 0 { '?' } else { '&' });
            match pair.split_once('=') {
                Some((name, _)) if name.contains("pass") => out.push_str(&format!("{name}=***")),
                _ => out.push_str(pair),
            }
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_taken_out_of_urls() {
        for (text, shown) in [
            ("redis://:secret@host:1/", "redis://***@host:1/"),
            ("'redis://u:p@ss@host/1' is bad", "'redis://***@host/1' is bad"),
            ("redis://host/ and rediss://a:b@c", "redis://host/ and rediss://***@c"),
            ("redis+unix:///s.sock?db=1&pass=secret", "redis+unix:///s.sock?db=1&pass=***"),
            (
                "redis+sentinel://u:p@a,b:1/m?sentinel_password=q@r&sentinel_user=s, since",
                "redis+sentinel://*** since",
            ),
            (
                "redis+sentinel://a,b/m?sentinel_password=q&sentinel_user=s",
                "redis+sentinel://a,b/m?sentinel_password=***&sentinel_user=s",
            ),
            ("redis+cluster://:p@a:1,b:2", "redis+cluster://***@a:1,b:2"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
