//! Tool calls as they come out of a stream: fragments of text in, [`Block::ToolUse`] with unique ids and checked
//! arguments out. Shared by the providers.

use super::Block;
use serde_json::{Map, Value};
use std::collections::HashSet;
use uuid::Uuid;

/// A call that is still being put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragments {
    /// The provider's id; empty where it gave none.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text, as far as they came.
    pub arguments: String,
}

impl Fragments {
    /// Whether the arguments are a whole JSON object already, so that more of them would be another call's.
    pub(super) fn is_whole(&self) -> bool {
        self.arguments.trim_end().ends_with('}') && parse(&self.arguments).is_ok()
    }
}

/// Gives every call an id that is unique in its completion, and checks the arguments. Calls that must not run
/// go into `malformed` with the reason, and keep `{}` as input.
#[derive(Default)]
pub(super) struct Finisher {
    seen: HashSet<String>,
    /// See [`super::Completion::malformed`].
    pub malformed: Vec<(String, String)>,
}

impl Finisher {
    /// The block of one call.
    pub(super) fn block(&mut self, call: Fragments) -> Block {
        let mut id = call.id;
        if id.is_empty() || !self.seen.insert(id.clone()) {
            id = format!("call_{}", Uuid::new_v4().simple());
            self.seen.insert(id.clone());
        }
        let mut name = call.name;
        let mut fault = None;
        if name.is_empty() {
            "unknown".clone_into(&mut name);
            fault = Some("the call names no tool".to_owned());
        }
        let input = parse(&call.arguments).unwrap_or_else(|why| {
            fault.get_or_insert(why);
            Map::new()
        });
        let input = if fault.is_some() { Map::new() } else { input };
        if let Some(why) = fault {
            self.malformed.push((id.clone(), why));
        }
        Block::ToolUse { id, name, input }
    }
}

/// Arguments are a JSON object; nothing at all counts as `{}`.
fn parse(arguments: &str) -> Result<Map<String, Value>, String> {
    if arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => Ok(input),
        Ok(_) => Err("the arguments are not a JSON object".to_owned()),
        Err(why) => Err(format!("the arguments are not whole JSON: {why}")),
    }
}
