//! What stands in an answer of Redis's: numbers, texts, lists. What it means for an operation is in `replies.rs`.

use redis::Value;

/// A number in an answer: an integer, or text that reads as one.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(n) => Some(*n),
        other => text(Some(other))?.parse().ok(),
    }
}

/// Text in an answer.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(n) => Some(n.to_string()),
        _ => None,
    }
}

/// A list in an answer.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}
