//! Splits a Lua file into the statements outside all functions, each with what it defines and what it needs.

use std::collections::BTreeSet;

/// What a statement defines, or refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name<'a> {
    Local(&'a str),
    /// `kind.a`
    Kind(&'a str),
    /// The whole kind, which is used as a value.
    WholeKind,
}

/// A statement outside all functions.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    /// One by `local function a`, `function kind.a` or `kind.a = …`; some by `local a, b = …`; none by another statement.
    pub(super) defines: Vec<Name<'a>>,
    /// Whether it is a function: `local function a() … end`, `function kind.a() … end` or `kind.a =
    /// function() … end`.
    pub(super) is_function: bool,
    pub(super) needs: BTreeSet<Name<'a>>,
}

impl<'a> Item<'a> {
    fn new(tokens: &[Token<'a>]) -> Self {
        let words: Vec<_> = tokens.iter().map(|t| if t.is == Is::Literal { "''" } else { t.text }).collect();
        let (defines, is_function) = match words.as_slice() {
            ["local", "function", name, ..] => (vec![Name::Local(name)], true),
            ["local", name, rest @ ..] => {
                let more = rest.chunks(2).take_while(|pair| pair[0] == ",").filter_map(|pair| pair.get(1));
                ([name].into_iter().chain(more).map(|name| Name::Local(name)).collect(), false)
            }
            ["function", "kind", ".", name, "(", ..] => (vec![Name::Kind(name)], true),
            ["kind", ".", name, "=", rest @ ..] => {
                (vec![Name::Kind(name)], rest.first() == Some(&"function"))
            }
            _ => (Vec::new(), false),
        };
        Item { tokens: tokens.to_vec(), defines, is_function, needs: needs(tokens) }
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens.first().map_or(1, |token| token.line)
    }

    pub(super) fn is_mark(&self) -> bool {
        self.tokens.first().is_some_and(|token| token.is == Is::Mark)
    }

    /// The name that an error uses for it.
    pub(super) fn label(&self) -> String {
        let names = self.defines.iter().map(|name| match name {
            Name::Kind(name) => format!("kind.{name}"),
            Name::Local(name) => (*name).to_owned(),
            Name::WholeKind => String::new(),
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Returns what these tokens refer to, which may be defined elsewhere. A local of theirs may have the same name; that
/// is not checked, so that more may be included than is needed.
pub(super) fn needs<'a>(tokens: &[Token<'a>]) -> BTreeSet<Name<'a>> {
    let mut needs = BTreeSet::new();
    let mut brackets = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let before = i.checked_sub(1).map_or("", |i| tokens[i].text);
        let behind = |n: usize| tokens.get(i + n).map_or("", |token| token.text);
        match (token.is, token.text) {
            (Is::Symbol, "(" | "{" | "[") => brackets.push(token.text),
            (Is::Symbol, ")" | "}" | "]") => drop(brackets.pop()),
            (Is::Name, name) => {
                let is_field = matches!(before, "." | ":");
                // `local kind = …` is not a use of it.
                let is_declared = before == "local";
                let is_key =
                    brackets.last() == Some(&"{") && matches!(before, "{" | "," | ";") && behind(1) == "=";
                if is_field || is_key || is_declared {
                    continue;
                }
                needs.insert(Name::Local(name));
                if name == "kind" {
                    needs.insert(match behind(1) {
                        "." => Name::Kind(behind(2)),
                        _ => Name::WholeKind,
                    });
                }
            }
            _ => {}
        }
    }
    needs
}

/// Returns the statements of a file outside all functions.
pub(super) fn items(source: &str) -> Result<Vec<Item<'_>>, Wrong> {
    let all = tokens(source)?;
    let (mut items, mut begins) = (Vec::new(), 0);
    let mut open: Vec<&Token<'_>> = Vec::new();
    // Whether the `do` of a `for` or `while` is yet to come.
    let mut header = false;
    for (i, token) in all.iter().enumerate() {
        let behind_expression = i.checked_sub(1).is_none_or(|i| all[i].ends_expression());
        let starts = match token.is {
            Is::Name => behind_expression,
            Is::Keyword => match token.text {
                "local" | "if" | "for" | "while" | "repeat" | "return" | "break" => true,
                "function" => behind_expression,
                "do" => !header,
                _ => false,
            },
            _ => false,
        };
        if open.is_empty() && (starts || token.is == Is::Mark) && begins < i {
            items.push(Item::new(&all[begins..i]));
            begins = i;
        }
        match (token.is, token.text) {
            (Is::Keyword, "for" | "while") => header |= open.is_empty(),
            (Is::Keyword, "do") => {
                header &= !open.is_empty();
                open.push(token);
            }
            (Is::Keyword, "function" | "if" | "repeat") | (Is::Symbol, "(" | "{" | "[") => open.push(token),
            (Is::Keyword, "end" | "until") | (Is::Symbol, ")" | "}" | "]") => {
                let pairs = ["()", "{}", "[]", "repeatuntil", "functionend", "ifend", "doend"];
                match open.pop() {
                    Some(opener) if pairs.contains(&&*[opener.text, token.text].concat()) => {}
                    Some(Token { text, line, .. }) => {
                        let why = format!("{:?} does not close the {text:?} of line {line}", token.text);
                        return Err(Wrong::new(token.line, why));
                    }
                    None => return Err(Wrong::new(token.line, format!("{:?} closes nothing", token.text))),
                }
            }
            _ => {}
        }
    }
    if let Some(opener) = open.pop() {
        return Err(Wrong::new(opener.line, format!("this {:?} is not closed", opener.text)));
    }
    if begins < all.len() {
        items.push(Item::new(&all[begins..]));
    }
    Ok(items)
}

/// An error in a Lua file, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) line: u32,
    pub(super) why: String,
}

impl Wrong {
    pub(super) fn new(line: u32, why: impl Into<String>) -> Self {
        Wrong { line, why: why.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Name,
    Keyword,
    /// A number or a string.
    Literal,
    Symbol,
    /// A comment `--@ …`: a directive for the linker.
    Mark,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) is: Is,
    pub(super) text: &'a str,
    /// The line on which it begins, counted from 1.
    pub(super) line: u32,
    /// Whether there is nothing between it and the token before.
    pub(super) joined: bool,
}

impl Token<'_> {
    /// Whether an expression may end with it, so that a name after it begins a statement.
    pub(super) fn ends_expression(&self) -> bool {
        match self.is {
            Is::Name | Is::Literal => true,
            Is::Keyword => matches!(self.text, "nil" | "true" | "false" | "end" | "break"),
            Is::Symbol => matches!(self.text, ")" | "]" | "}" | "..." | ";"),
            Is::Mark => true,
        }
    }
}

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
    "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// Returns the tokens of `source`.
pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, Wrong> {
    let bytes = source.as_bytes();
    let (mut all, mut at, mut line, mut behind) = (Vec::new(), 0, 1, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_whitespace() {
            line += u32::from(byte == b'\n');
            at += 1;
            continue;
        }
        let rest = &source[at..];
        let (is, len) = if rest.starts_with("--@") {
            (Is::Mark, rest.find('\n').unwrap_or(rest.len()))
        } else if let Some(comment) = rest.strip_prefix("--") {
            let len = match long_bracket(comment) {
                Some(long) => long.map_err(|why| Wrong::new(line, why))?,
                None => comment.find('\n').unwrap_or(comment.len()),
            };
            line += rest[..2 + len].matches('\n').count() as u32;
            at += 2 + len;
            continue;
        } else {
            token(rest).map_err(|why| Wrong::new(line, why))?
        };
        let text = &rest[..len];
        let is = if is == Is::Name && KEYWORDS.contains(&text) { Is::Keyword } else { is };
        all.push(Token { is, text, line, joined: behind == at });
        line += text.matches('\n').count() as u32;
        at += len;
        behind = at;
    }
    Ok(all)
}

/// Returns the kind and the length of the token at the beginning of `rest`.
fn token(rest: &str) -> Result<(Is, usize), String> {
    let bytes = rest.as_bytes();
    let length = |fits: fn(u8) -> bool| bytes.iter().position(|b| !fits(*b)).unwrap_or(bytes.len());
    match bytes[0] {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
            Ok((Is::Name, length(|b| b.is_ascii_alphanumeric() || b == b'_')))
        }
        b'0'..=b'9' => Ok((Is::Literal, number(bytes))),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => Ok((Is::Literal, number(bytes))),
        b'"' | b'\'' => Ok((Is::Literal, quoted(bytes)?)),
        b'[' => match long_bracket(rest) {
            Some(long) => Ok((Is::Literal, long?)),
            None => Ok((Is::Symbol, 1)),
        },
        _ => {
            const LONG: [&str; 6] = ["...", "..", "==", "~=", "<=", ">="];
            if let Some(symbol) = LONG.iter().find(|symbol| rest.starts_with(**symbol)) {
                return Ok((Is::Symbol, symbol.len()));
            }
            match rest.chars().next() {
                Some(c) if "+-*/%^#<>=(){}];:,.".contains(c) => Ok((Is::Symbol, 1)),
                other => Err(format!("{:?} does not belong to Lua 5.1", other.unwrap_or_default())),
            }
        }
    }
}

/// Returns the length of a number, up to the sign of its exponent, if it has one: what is not read is only copied.
fn number(bytes: &[u8]) -> usize {
    // `1..2` is two numbers.
    let dot = |at: usize| bytes[at] == b'.' && bytes.get(at + 1) != Some(&b'.');
    (0..bytes.len()).find(|at| !bytes[*at].is_ascii_alphanumeric() && !dot(*at)).unwrap_or(bytes.len())
}

/// Returns the length of a quoted string, with its quotes.
fn quoted(bytes: &[u8]) -> Result<usize, String> {
    let mut at = 1;
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(byte) if *byte == bytes[0] => return Ok(at + 1),
            None | Some(b'\n') => return Err("a text is not closed in its line".into()),
            Some(_) => at += 1,
        }
    }
}

/// Returns the length of the long bracket (`[[`, `[=[` and so on) at the beginning of `rest`, up to the end
/// of its closing bracket; `None` if there is none.
fn long_bracket(rest: &str) -> Option<Result<usize, String>> {
    let level = rest.strip_prefix('[')?.bytes().take_while(|b| *b == b'=').count();
    if rest.as_bytes().get(level + 1) != Some(&b'[') {
        return None;
    }
    let closing = format!("]{}]", "=".repeat(level));
    let end = rest.find(&closing).map(|at| at + closing.len());
    Some(end.ok_or_else(|| format!("a long bracket is not closed by {closing}")))
}

#[cfg(test)]
#[path = "../../verify/unit/script/items.rs"]
mod tests;

#[cfg(test)]
#[path = "../../verify/unit/script/reader.rs"]
mod reader_tests;
