//! The answers of the layers themselves.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use redis_concurrent::{Error, ErrorKind};

use crate::body::Body;

/// An answer with a body of the type `application/problem+json` (RFC 9457), which says `what` in plain characters, and
/// after how many seconds to try again, if that makes sense.
pub(crate) fn problem<B>(status: StatusCode, what: &str, retry_after: Option<u64>) -> Response<Body<B>> {
    let (code, title) = (status.as_u16(), status.canonical_reason().unwrap_or_default());
    let body = format!("{{\"title\":\"{title}\",\"status\":{code},\"detail\":\"{what}\"}}\n");
    let mut response = Response::new(Body::text(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = retry_after {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The answer when Redis did not decide. The error itself is for the server's own eyes: it is an extension of the
/// response.
pub(crate) fn undecided<B>(error: Error) -> Response<Body<B>> {
    let mut response = match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::WrongType | ErrorKind::Protocol => {
            problem(StatusCode::INTERNAL_SERVER_ERROR, "the server's Redis keys cannot be used", None)
        }
        _ => problem(StatusCode::SERVICE_UNAVAILABLE, "the server cannot reach its Redis", Some(1)),
    };
    response.extensions_mut().insert(error);
    response
}
