//! Splits a Lua file into the statements outside all functions, each with what it defines and what it needs.

use std::collections::BTreeSet;

use super::reader::{Is, Token, Wrong, tokens};

/// What a statement outside all functions defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Defines<'a> {
    /// `local function a`, or `local a, b = …`
    Locals(Vec<&'a str>),
    /// `function kind.a`, or `kind.a = …`
    Kind(&'a str),
    /// Any other statement.
    Nothing,
}

/// What a statement refers to, which may be defined elsewhere. A local of the statement itself may have the
/// same name; that is not checked, so that more may be included than is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need<'a> {
    Local(&'a str),
    Kind(&'a str),
    /// The whole kind, which is used as a value.
    WholeKind,
}

/// A statement outside all functions.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) defines: Defines<'a>,
    /// Whether it is a function: `local function a() … end`, `function kind.a() … end` or `kind.a =
    /// function() … end`.
    pub(super) is_function: bool,
    pub(super) needs: BTreeSet<Need<'a>>,
}

impl<'a> Item<'a> {
    fn new(tokens: &[Token<'a>]) -> Self {
        let words: Vec<_> = tokens.iter().map(|t| if t.is == Is::Literal { "''" } else { t.text }).collect();
        let (defines, is_function) = match words.as_slice() {
            ["local", "function", name, ..] => (Defines::Locals(vec![name]), true),
            ["local", name, rest @ ..] => {
                let more = rest.chunks(2).take_while(|pair| pair[0] == ",").filter_map(|pair| pair.get(1));
                (Defines::Locals(std::iter::once(name).chain(more).copied().collect()), false)
            }
            ["function", "kind", ".", name, "(", ..] => (Defines::Kind(name), true),
            ["kind", ".", name, "=", rest @ ..] => (Defines::Kind(name), rest.first() == Some(&"function")),
            _ => (Defines::Nothing, false),
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
        match &self.defines {
            Defines::Locals(names) => names.join(", "),
            Defines::Kind(name) => format!("kind.{name}"),
            Defines::Nothing => String::new(),
        }
    }

    pub(super) fn locals(&self) -> &[&'a str] {
        match &self.defines {
            Defines::Locals(names) => names,
            _ => &[],
        }
    }

    pub(super) fn of_kind(&self) -> Option<&'a str> {
        match self.defines {
            Defines::Kind(name) => Some(name),
            _ => None,
        }
    }
}

/// Returns what these tokens refer to.
pub(super) fn needs<'a>(tokens: &[Token<'a>]) -> BTreeSet<Need<'a>> {
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
                needs.insert(Need::Local(name));
                if name == "kind" {
                    needs.insert(match behind(1) {
                        "." => Need::Kind(behind(2)),
                        _ => Need::WholeKind,
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
                let closes = |opener: &str| match token.text {
                    ")" => opener == "(",
                    "}" => opener == "{",
                    "]" => opener == "[",
                    "until" => opener == "repeat",
                    _ => matches!(opener, "function" | "if" | "do"),
                };
                match open.pop() {
                    Some(opener) if closes(opener.text) => {}
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

#[cfg(test)]
#[path = "../../verify/unit/script/items.rs"]
mod tests;
