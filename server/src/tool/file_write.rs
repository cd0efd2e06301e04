//! `file_write`: makes a file, or puts new content in one, in one step.

use super::args::Args;
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

/// The tool.
pub struct FileWrite;

impl Tool for FileWrite {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "file_write".into(),
            description:
                "Writes a text file as UTF-8: a new one, or in place of the old content. Missing folders \
                          are made. To change a part of a file, use file_edit."
                    .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, absolute, or ~/ for the home folder"},
                    "content": {"type": "string", "description": "The whole content"},
                },
                "required": ["path", "content"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| write(&Args::new("file_write", &input), context)).boxed()
    }
}

fn write(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let path = args.filled_text("path")?;
    let content = args.text("content")?;
    let guard = context.guard();
    let path = guard.resolve(path).map_err(|error| error.to_string())?;
    let target = guard.write_target(&path).map_err(|error| error.to_string())?;
    let verb = if target.exists() { "Replaced" } else { "Created" };
    target.replace(content.as_bytes(), false, &context.cancel).map_err(|error| error.to_string())?;
    Ok(format!("{verb} {}: {} bytes written", guard.shown(&path), content.len()))
}

#[cfg(test)]
mod tests;
