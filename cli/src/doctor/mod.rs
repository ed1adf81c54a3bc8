//! `doctor`: whether this server is fit for locks, each check with what was found and what to do.

mod locks;
mod server;

use std::process::ExitCode;

use serde_json::json;

use crate::args::Global;
use crate::connect;
use crate::exit::Failure;
use crate::say;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ok,
    Warn,
    Fail,
}

/// A check's outcome.
pub struct Finding {
    name: &'static str,
    state: State,
    found: String,
    /// Empty where nothing is to be done.
    to_do: String,
}

impl Finding {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, state: State::Ok, found: found.into(), to_do: String::new() }
    }

    pub fn warn(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { name, state: State::Warn, found: found.into(), to_do: to_do.into() }
    }

    pub fn fail(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { name, state: State::Fail, found: found.into(), to_do: to_do.into() }
    }

    fn word(&self) -> &'static str {
        match self.state {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
        }
    }
}

/// Exits 0 if all is well, 1 with a warning, 2 with a failure.
pub fn doctor(global: &Global) -> Result<ExitCode, Failure> {
    let mut findings = Vec::new();
    match connect::plain(global) {
        Err(failure) => findings.push(Finding::fail(
            "reach",
            failure.to_string(),
            "check the address, the network, the password",
        )),
        Ok(mut connection) => {
            findings.extend(server::check(&mut connection));
            findings.extend(locks::check(global));
        }
    }
    for it in &findings {
        if global.json {
            let to_do = Some(&it.to_do).filter(|it| !it.is_empty());
            say::answer(json!({"check": it.name, "state": it.word(), "found": it.found, "to_do": to_do}))?;
        } else {
            let found = say::without_passwords(&it.found);
            let to_do = if it.to_do.is_empty() { String::new() } else { format!("; {}", it.to_do) };
            say::answer(format!("{:4}  {:16}  {found}{to_do}", it.word(), it.name))?;
        }
    }
    let worst = findings.iter().map(|it| it.state).max().unwrap_or(State::Ok);
    Ok(ExitCode::from(worst as u8))
}
