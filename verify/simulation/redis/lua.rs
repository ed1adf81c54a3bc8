//! The scripts, in Lua 5.1, with what Redis gives them: `redis.call`, `redis.pcall`, `cmsgpack`.
//!
//! One Lua runs the scripts of all servers of a thread, one at a time, each with the state of its server.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value, Variadic};

use super::State;
use super::msgpack;
use super::reply::{Answer, Reply};

/// What surrounds each script. Takes the function that runs a command, and that which formats a number.
const AROUND: &str = "
local run = ...
local function call(...)
  local answer = run(...)
  if type(answer) == 'table' and answer.err then error(answer, 0) end
  return answer
end
redis = {call = call, pcall = run}
return function(script, keys, args)
  KEYS, ARGV = keys, args
  local ok, answer = pcall(script)
  if ok then return answer end
  return {err = type(answer) == 'table' and answer.err or 'ERR ' .. tostring(answer)}, true
end";

struct Vm {
    lua: Lua,
    around: Function,
    scripts: HashMap<String, Function>,
    state: Rc<RefCell<State>>,
}

thread_local!(static VM: RefCell<Vm> = RefCell::new(Vm::new().expect("a Lua")));

/// Compiles a script; returns its SHA1.
pub(super) fn compile(source: &[u8]) -> Result<String, String> {
    let sha = redis::Script::new(&String::from_utf8_lossy(source)).get_hash().to_owned();
    VM.with_borrow_mut(|vm| {
        if !vm.scripts.contains_key(&sha) {
            let compiled = vm.lua.load(source).set_name("@user_script").into_function();
            let compiled = compiled.map_err(|e| format!("ERR Error compiling script (new function): {e}"))?;
            vm.scripts.insert(sha.clone(), compiled);
        }
        Ok(sha)
    })
}

/// Runs a compiled script on a state, which it returns.
pub(super) fn run(sha: &str, state: State, keys: &[Vec<u8>], args: &[Vec<u8>]) -> (State, Answer) {
    VM.with_borrow(|vm| {
        vm.state.replace(state);
        let answer = vm.run(sha, keys, args).unwrap_or_else(|e| Err(format!("ERR {e}")));
        (vm.state.take(), answer)
    })
}

impl Vm {
    fn new() -> mlua::Result<Vm> {
        let lua = Lua::new();
        let state = Rc::new(RefCell::new(State::default()));
        let mine = state.clone();
        let run = lua.create_function(move |lua, args: Variadic<Value>| match words(lua, &args) {
            Some(words) => to_lua(lua, &mine.borrow_mut().call(&words)),
            None => to_lua(
                lua,
                &Reply::Error("ERR Lua redis lib command arguments must be strings or integers".into()),
            ),
        })?;
        let packs = lua.create_table()?;
        packs.set(
            "pack",
            lua.create_function(|lua, all: Variadic<Value>| {
                let mut out = Vec::new();
                all.iter().try_for_each(|value| msgpack::pack(value, &mut out))?;
                lua.create_string(&out)
            })?,
        )?;
        packs.set(
            "unpack",
            lua.create_function(|lua, text: LuaString| {
                let text = text.as_bytes();
                let (mut bytes, mut all) = (&*text, MultiValue::new());
                while !bytes.is_empty() {
                    all.push_back(msgpack::unpack(lua, &mut bytes)?);
                }
                Ok(all)
            })?,
        )?;
        lua.globals().set("cmsgpack", packs)?;
        let around = lua.load(AROUND).call(run)?;
        Ok(Vm { lua, around, scripts: HashMap::new(), state })
    }

    fn run(&self, sha: &str, keys: &[Vec<u8>], args: &[Vec<u8>]) -> mlua::Result<Answer> {
        let table = |all: &[Vec<u8>]| {
            let texts: Vec<_> =
                all.iter().map(|it| self.lua.create_string(it)).collect::<mlua::Result<_>>()?;
            self.lua.create_sequence_from(texts)
        };
        let (answer, failed): (Value, bool) =
            self.around.call((&self.scripts[sha], table(keys)?, table(args)?))?;
        Ok(match from_lua(&answer)? {
            Reply::Error(text) if failed => Err(format!("{text} script: {sha}, on @user_script:1.")),
            reply => Ok(reply),
        })
    }
}

/// The words of a command: a number that is whole is written as one.
fn words(lua: &Lua, args: &[Value]) -> Option<Vec<Vec<u8>>> {
    let word = |arg: &Value| match arg {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(n) => Some(n.to_string().into_bytes()),
        Value::Number(n) if *n == n.trunc() && n.abs() < 9.2e18 => Some(format!("{n:.0}").into_bytes()),
        Value::Number(n) => {
            let format: Function = lua.globals().get::<Table>("string").ok()?.get("format").ok()?;
            format.call::<String>(("%.17g", *n)).ok().map(String::into_bytes)
        }
        _ => None,
    };
    args.iter().map(word).collect()
}

fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let one = |name: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        #[allow(clippy::cast_precision_loss)]
        Reply::Int(n) => Value::Number(*n as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Status(text) => one("ok", text)?,
        Reply::Error(text) => one("err", text)?,
        Reply::List(all) => {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for (i, item) in all.iter().enumerate() {
                table.raw_set(i + 1, to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

fn from_lua(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(&*text.as_bytes()),
        Value::Integer(n) => Reply::Int(*n),
        // As there, without its fraction.
        #[allow(clippy::cast_possible_truncation)]
        Value::Number(n) => Reply::Int(*n as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => {
            if let Some(text) = table.raw_get::<Option<LuaString>>("err")? {
                return Ok(Reply::Error(text.to_string_lossy()));
            }
            if let Some(text) = table.raw_get::<Option<LuaString>>("ok")? {
                return Ok(Reply::Status(text.to_string_lossy()));
            }
            let all = table.sequence_values::<Value>();
            Reply::List(all.map(|item| from_lua(&item?)).collect::<mlua::Result<_>>()?)
        }
        _ => Reply::Nil,
    })
}
