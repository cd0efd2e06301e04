//! `file_list`: the names in a folder, or in all folders below it.

use super::args::Args;
use super::walk::{Halt, Purpose, Watch, walk};
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use crate::text::on_one_line;
use crate::workspace::paths::Kind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How many entries are listed.
const MAX_ENTRIES: usize = 500;

/// The tool.
pub struct FileList;

impl Tool for FileList {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "file_list".into(),
            description:
                "Lists the files (📄) and folders (📁) of a folder, without node_modules and .git. At most \
                          500 entries; to find files by name in a large tree, use glob."
                    .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "The folder (default: the workspace)"},
                    "recursive": {"type": "boolean", "description": "Also list all folders below it (default false)"},
                },
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| list(&Args::new("file_list", &input), context)).boxed()
    }
}

fn list(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let path = args.optional_text("path")?.unwrap_or(".");
    let purpose = if args.switch("recursive")? { Purpose::ListTree } else { Purpose::List };
    let guard = Arc::new(context.guard());
    let path = guard.resolve(path).map_err(|error| error.to_string())?;
    let root = guard.open_folder(&path).map_err(|error| error.to_string())?;
    let mut lines = Vec::new();
    let mut more = false;
    let walked = walk(&root, purpose, &guard, &Watch::new(&context.cancel), |found| {
        if lines.len() == MAX_ENTRIES {
            more = true;
            return false;
        }
        let name = found.path.strip_prefix(&root).unwrap_or(&found.path).to_string_lossy();
        let name = on_one_line(&name);
        lines.push(match found.kind {
            Some(Kind::Folder) => format!("📁 {name}/"),
            _ => format!("📄 {name}"),
        });
        true
    });
    if more {
        lines.push(format!(
            "[truncated] Only the first {MAX_ENTRIES} entries are shown; use glob to find files by name"
        ));
    }
    match walked {
        Err(Halt::Stopped) => return Err(Halt::Stopped.note()),
        Err(halt) => lines.push(halt.note()),
        // The folder itself could not be read.
        Ok(1..) if lines.is_empty() => return Err(format!("{}: cannot be read", guard.shown(&path))),
        Ok(0) => {}
        Ok(unreadable) => lines.push(format!("[Folders that could not be read: {unreadable}]")),
    }
    if lines.is_empty() {
        return Ok("(the folder is empty)".into());
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests;
