//! Replies, as RESP2 has them.

use redis::Value;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Status(String),
    /// Its text begins with its code.
    Error(String),
    List(Vec<Reply>),
}

/// A command's reply, or its error.
pub(super) type Answer = Result<Reply, String>;

impl Reply {
    pub(crate) fn ok() -> Reply {
        Reply::Status("OK".to_owned())
    }

    pub(super) fn bulk(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply::Bulk(bytes.into())
    }

    pub(super) fn or_nil(bytes: Option<impl Into<Vec<u8>>>) -> Reply {
        bytes.map_or(Reply::Nil, Reply::bulk)
    }

    pub(super) fn bulks<T: Into<Vec<u8>>>(all: impl IntoIterator<Item = T>) -> Reply {
        Reply::List(all.into_iter().map(Reply::bulk).collect())
    }

    pub(super) fn truth(yes: bool) -> Reply {
        Reply::Int(yes.into())
    }

    pub(super) fn count(n: usize) -> Reply {
        Reply::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => Reply::Bulk(bytes),
            Value::Okay => Reply::ok(),
            Value::SimpleString(text) => Reply::Status(text),
            Value::Array(all) => Reply::List(all.into_iter().map(Reply::from).collect()),
            Value::ServerError(e) => {
                Reply::Error([e.code(), e.details().unwrap_or_default()].join(" ").trim_end().to_owned())
            }
            other => panic!("not a reply of RESP2: {other:?}"),
        }
    }
}

impl From<Reply> for Value {
    fn from(reply: Reply) -> Value {
        match reply {
            Reply::Nil => Value::Nil,
            Reply::Int(n) => Value::Int(n),
            Reply::Bulk(bytes) => Value::BulkString(bytes),
            Reply::Status(text) if text == "OK" => Value::Okay,
            Reply::Status(text) => Value::SimpleString(text),
            Reply::List(all) => Value::Array(all.into_iter().map(Value::from).collect()),
            // Only the crate's parser can make one.
            Reply::Error(text) => {
                let line = format!("-{}\r\n", text.replace(['\r', '\n'], " "));
                redis::parse_redis_value(line.as_bytes()).expect("an error")
            }
        }
    }
}
