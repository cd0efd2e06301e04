//! `file_edit`: puts one text in the place of another. Works on bytes, so that what the edit does not touch stays
//! as it is: encoding, BOM, line ends, the missing newline at the end. An edit that could break a character or
//! mix encodings is refused, with the file untouched.

pub(super) mod bytes;
#[cfg(test)]
mod tests;

use super::args::Args;
use super::file_read::{is_binary, is_utf16};
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use bytes::{Edit, EditError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::io::Read;

/// The biggest file that is edited, before and after.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// The tool.
pub struct FileEdit;

impl Tool for FileEdit {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "file_edit".into(),
            description: "Replaces a text in a file by another, literally. old_string must be in the file exactly \
                          once, with its spaces and indentation, or replace_all must be true. Give it without the \
                          line numbers of file_read; line ends (LF or CRLF) are kept as the file has them."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, absolute, or ~/ for the home folder"},
                    "old_string": {"type": "string", "description": "The text to replace"},
                    "new_string": {"type": "string", "description": "The text to put there"},
                    "replace_all": {"type": "boolean", "description": "Replace every place (default false)"},
                },
                "required": ["path", "old_string", "new_string"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| edit(&Args::new("file_edit", &input), context)).boxed()
    }
}

fn edit(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let path = args.filled_text("path")?;
    let (old, new) = (args.text("old_string")?, args.text("new_string")?);
    let replace_all = args.switch("replace_all")?;
    if old.is_empty() {
        return Err("old_string is empty: give the text to replace, or use file_write for a new file".into());
    }
    if old == new {
        return Err("old_string and new_string are the same: there is nothing to do".into());
    }
    let guard = context.guard();
    let path = guard.resolve(path).map_err(|error| error.to_string())?;
    let shown = guard.shown(&path);
    // Looked at first, because the way to a place for writing makes missing folders.
    guard.look(&path).map_err(|error| error.to_string())?;
    let target = guard.write_target(&path).map_err(|error| error.to_string())?;
    let opened = target.open_old().map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    opened
        .file
        .take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| format!("{shown}: {error}"))?;
    if content.len() > MAX_BYTES {
        return Err(format!(
            "{shown} is over {} MiB, too big for file_edit; use a command such as sed",
            MAX_BYTES >> 20
        ));
    }
    if is_utf16(&content) {
        return Err(format!("{shown} is UTF-16, which file_edit cannot keep; the file is untouched"));
    }
    if is_binary(&content) {
        return Err(format!("{shown} is a binary file; the file is untouched"));
    }
    let edit = Edit { content: &content, old, new, replace_all, limit: MAX_BYTES };
    let (changed, places) = edit.apply().map_err(|error| explain(&error, &shown))?;
    target.replace(&changed, true, &context.cancel).map_err(|error| error.to_string())?;
    Ok(match places {
        1 => format!("Edited {shown}: 1 place replaced"),
        _ => format!("Edited {shown}: {places} places replaced"),
    })
}

fn explain(error: &EditError, shown: &str) -> String {
    match error {
        EditError::Absent { foreign: false } => {
            format!("old_string is not in {shown}; read the file again and copy the text exactly")
        }
        EditError::Absent { foreign: true } => format!(
            "old_string is not in {shown}: the file is not UTF-8, and old_string has letters beyond ASCII, which \
             are other bytes there; choose an old_string of plain ASCII. The file is untouched"
        ),
        EditError::Several { count, lines } => {
            let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
            let more = if lines.len() < *count { " and more" } else { "" };
            format!(
                "old_string is {count} times in {shown} (lines {}{more}); give more of the text around it, or set \
                 replace_all",
                lines.join(", ")
            )
        }
        EditError::InsideCharacter { line } => format!(
            "{shown} is not UTF-8, and old_string on line {line} may begin inside a character; begin it at a \
             space or at the start of a line. The file is untouched"
        ),
        EditError::MixesEncodings => format!(
            "{shown} is not UTF-8, and new_string has letters beyond ASCII, which would mix two encodings in one \
             file; write plain ASCII, or convert the file first (iconv). The file is untouched"
        ),
        EditError::TooBig => format!("{shown} would become too big; the file is untouched"),
    }
}
