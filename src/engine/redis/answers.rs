//! The contents of Redis's replies: numbers, text, lists. What they mean for an operation is in `replies.rs`.

use redis::Value;

/// Reads a number: an integer, or text that parses as one.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(n) => Some(*n),
        other => text(Some(other))?.parse().ok(),
    }
}

/// Reads text.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(n) => Some(n.to_string()),
        _ => None,
    }
}

/// Reads a list; anything else counts as an empty one.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}
