//! What users do to a kind's state, with its outcome told as calls tell it.

use std::sync::Arc;

use redis::Value;

use super::backend::Failure;
use super::cell::Cell;
use super::requests;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};

/// Has the state changed: `what`, with what the rule wants to know of it. Returns the rule's answer. Blocks
/// for the command limit at most.
///
/// # Errors
/// `Unknown` where Redis did not answer: it may have been done, or be yet.
pub(crate) fn change(cell: &Arc<Cell>, what: &[&str]) -> Result<Vec<Value>, Error> {
    let shared = &cell.shared;
    shared.usable().map_err(|e| cell.error(e))?;
    let limit = Moment::now().after(shared.config.command_timeout);
    requests::change(cell, what, limit).map_err(|failure| {
        cell.error(match failure {
            Failure::Unanswered(e) => Error::new(ErrorKind::Unknown, "")
                .because("the change may have been made, or not")
                .caused_by(e),
            failure => failure.error(),
        })
    })
}
