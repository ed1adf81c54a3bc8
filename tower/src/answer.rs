//! What is kept of an answer, and of the request that it is for.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, response};
use sha2::{Digest, Sha256};

/// The longest record: the longest answer of a [`Once`](redis_concurrent::Once).
pub(crate) const LONGEST: usize = 256 * 1024;
/// The first line of a record begins with the version of its form.
const VERSION: &str = "1";
/// What belongs to the connection or to the moment, and not to the answer; and cookies, which are for one client.
const NOT_KEPT: [HeaderName; 12] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::DATE,
    header::SET_COOKIE,
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
];

/// Whether an answer with this status ends the work. Of the others, the client is expected to try again.
pub(crate) fn is_final(status: StatusCode) -> bool {
    let passing = [
        StatusCode::UNAUTHORIZED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::CONFLICT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    !status.is_informational() && !status.is_server_error() && !passing.contains(&status)
}

/// A digest of texts, each with its length, so that no two lists of them have the same.
pub(crate) fn digest(texts: &[&[u8]]) -> String {
    let mut all = Sha256::new();
    for text in texts {
        all.update((text.len() as u64).to_le_bytes());
        all.update(text);
    }
    all.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What two requests have in common if one is the repetition of the other: the method, the path with its query, and
/// the body.
pub(crate) fn fingerprint(request: &Parts, body: &[u8]) -> String {
    let path = request.uri.path_and_query().map_or("", |it| it.as_str());
    digest(&[request.method.as_str().as_bytes(), path.as_bytes(), body])
}

/// What is kept of an answer. It is written as HTTP writes it: a line, the headers, an empty line, the body; each byte
/// as the character of that number, as a [`Once`](redis_concurrent::Once) keeps text.
pub(crate) struct Kept {
    pub(crate) fingerprint: String,
    /// `None` if the answer was too long.
    pub(crate) answer: Option<Response<Bytes>>,
}

/// The record of an answer with this body; `None` stands for one that is too long to read.
pub(crate) fn record(fingerprint: &str, head: &response::Parts, body: Option<&[u8]>) -> String {
    let line = |what: &str| format!("{VERSION} {fingerprint} {what}\n").into_bytes();
    let whole = body.map(|body| {
        let mut record = line(head.status.as_str());
        for (name, value) in head.headers.iter().filter(|(name, _)| !NOT_KEPT.contains(name)) {
            record.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
        }
        record.push(b'\n');
        record.extend(body);
        text(&record)
    });
    whole.filter(|it| it.len() <= LONGEST).unwrap_or_else(|| text(&line("long")))
}

impl Kept {
    /// Reads a record; `None` if it is not one, or of a form that this version does not know.
    pub(crate) fn read(record: &str) -> Option<Kept> {
        let record = bytes(record)?;
        let (line, rest) = split(&record, b"\n")?;
        let mut words = str::from_utf8(line).ok()?.split(' ');
        let (version, fingerprint, what) = (words.next()?, words.next()?, words.next()?);
        if version != VERSION || words.next().is_some() {
            return None;
        }
        let answer = if what == "long" { None } else { Some(answer(what, rest)?) };
        Some(Kept { fingerprint: fingerprint.to_owned(), answer })
    }
}

fn answer(status: &str, mut rest: &[u8]) -> Option<Response<Bytes>> {
    let mut headers = HeaderMap::new();
    loop {
        let (line, below) = split(rest, b"\n")?;
        rest = below;
        if line.is_empty() {
            break;
        }
        let (name, value) = split(line, b": ")?;
        headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    let mut answer = Response::new(Bytes::copy_from_slice(rest));
    *answer.status_mut() = status.parse().ok()?;
    *answer.headers_mut() = headers;
    Some(answer)
}

fn split<'a>(text: &'a [u8], by: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(by.len()).position(|it| it == by)?;
    Some((&text[..at], &text[at + by.len()..]))
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(c).ok()).collect()
}
