//! Arguments as models send them: typed by the schema, but checked here, because nothing else checks them.

use serde_json::{Map, Value};

/// The arguments of one call of a tool.
pub struct Args<'a> {
    tool: &'a str,
    input: &'a Map<String, Value>,
}

impl<'a> Args<'a> {
    /// The arguments `input` of `tool`.
    pub fn new(tool: &'a str, input: &'a Map<String, Value>) -> Self {
        Self { tool, input }
    }

    /// A text that must be there; it may be empty.
    pub fn text(&self, name: &str) -> Result<&'a str, String> {
        self.optional_text(name)?.ok_or_else(|| format!("{} needs \"{name}\" (a text)", self.tool))
    }

    /// A text that must be there and not be blank.
    pub fn filled_text(&self, name: &str) -> Result<&'a str, String> {
        let text = self.text(name)?;
        if text.trim().is_empty() {
            return Err(format!("{}: \"{name}\" is empty", self.tool));
        }
        Ok(text)
    }

    /// A text that may be absent.
    pub fn optional_text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.input.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{}: \"{name}\" must be a text", self.tool)),
        }
    }

    /// An object that may be absent.
    pub fn optional_object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, String> {
        match self.input.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(format!("{}: \"{name}\" must be an object", self.tool)),
        }
    }

    /// A whole number from 1 that may be absent. Some models send it as text or as `5.0`.
    pub fn count(&self, name: &str) -> Result<Option<usize>, String> {
        let number = match self.input.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number
                .as_u64()
                .or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && *n >= 1.0).map(|n| n as u64)),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) if number >= 1 => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
            _ => Err(format!("{}: \"{name}\" must be a whole number from 1", self.tool)),
        }
    }

    /// A switch that is off when absent.
    pub fn switch(&self, name: &str) -> Result<bool, String> {
        match self.input.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(format!("{}: \"{name}\" must be true or false", self.tool)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_argument_is_named_with_its_tool() {
        let Value::Object(input) = json!({"path": 3, "n": 0, "m": "7", "f": 2.0, "neg": -1, "on": "true"})
        else {
            unreachable!()
        };
        let args = Args::new("grep", &input);
        assert_eq!(args.text("path"), Err("grep: \"path\" must be a text".into()));
        assert_eq!(args.text("pattern"), Err("grep needs \"pattern\" (a text)".into()));
        assert_eq!(args.count("n"), Err("grep: \"n\" must be a whole number from 1".into()));
        assert!(args.count("neg").is_err());
        assert_eq!(args.count("m"), Ok(Some(7)));
        assert_eq!(args.count("f"), Ok(Some(2)));
        assert_eq!(args.count("none"), Ok(None));
        assert_eq!(args.switch("on"), Ok(true));
    }
}
