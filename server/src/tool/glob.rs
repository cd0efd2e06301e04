//! `glob`: files by the pattern of their path. Opens no file.

use super::args::Args;
use super::walk::{Halt, Purpose, Watch, walk};
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use crate::workspace::paths::Kind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Map, Value, json};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Bytes of a pattern: what a pattern of very many parts costs grows with their square.
const MAX_PATTERN: usize = 1024;
/// How many paths are given.
const MAX_PATHS: usize = 5000;

/// The tool.
pub struct Glob;

impl Tool for Glob {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "glob".into(),
            description: "Finds files by a pattern of their path, such as **/*.ts or src/{a,b}/*.rs; * stops at a \
                          slash, ** does not. Gives paths relative to the workspace in alphabetical order, without \
                          node_modules, .git, .next and dist."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "Relative to path"},
                    "path": {"type": "string", "description": "The folder to search (default: the workspace)"},
                },
                "required": ["pattern"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| find(&Args::new("glob", &input), context)).boxed()
    }
}

fn find(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let pattern = args.filled_text("pattern")?;
    let guard = Arc::new(context.guard());
    let path =
        guard.resolve(args.optional_text("path")?.unwrap_or(".")).map_err(|error| error.to_string())?;
    let (path, pattern) = split_absolute(path, pattern);
    let matcher = compile(&pattern)?;
    let root = guard.open_folder(&path).map_err(|error| error.to_string())?;
    let mut paths = Vec::new();
    let mut more = false;
    let walked = walk(&root, Purpose::Search, &guard, &Watch::new(&context.cancel), |found| {
        let below = found.path.strip_prefix(&root).unwrap_or(&found.path);
        if found.kind == Some(Kind::File) && matcher.is_match(below) {
            more = paths.len() == MAX_PATHS;
            if !more {
                paths.push(guard.shown(&found.path));
            }
        }
        !more
    });
    paths.sort_unstable();
    if more {
        paths.push(format!("[Ended at {MAX_PATHS} files: narrow the pattern or the path]"));
    }
    match walked {
        Err(Halt::Stopped) => return Err(Halt::Stopped.note()),
        Err(halt) => paths.push(halt.note()),
        Ok(_) if paths.is_empty() => paths.push("No files match.".into()),
        Ok(_) => {}
    }
    Ok(paths.join("\n"))
}

/// A glob in which `*` stops at a slash.
pub(super) fn compile(pattern: &str) -> Result<GlobMatcher, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("the glob has {} bytes; {MAX_PATTERN} are the most", pattern.len()));
    }
    GlobBuilder::new(pattern.strip_prefix("./").unwrap_or(pattern))
        .literal_separator(true)
        .empty_alternates(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| format!("the pattern is not a valid glob: {error}"))
}

/// An absolute pattern brings its own folder: the parts before the first that is a pattern.
fn split_absolute(path: PathBuf, pattern: &str) -> (PathBuf, String) {
    let whole = Path::new(pattern);
    if !whole.is_absolute() {
        return (path, pattern.to_owned());
    }
    let is_pattern =
        |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{', '\\']);
    let parts: Vec<_> = whole.components().collect();
    // The last part is a file's name, pattern or not.
    let split = parts.iter().position(is_pattern).unwrap_or(parts.len()).min(parts.len().saturating_sub(1));
    let rest: PathBuf = parts[split..].iter().collect();
    (parts[..split].iter().collect(), rest.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
