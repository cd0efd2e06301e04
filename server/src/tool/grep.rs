//! `grep`: lines of files that match a regular expression, on ripgrep's libraries. Ignore files are not honoured:
//! what is skipped is the list of [`super::walk`], binary files, and what is hidden.

use super::args::Args;
use super::glob::compile;
use super::walk::{Halt, Purpose, walk};
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use crate::text::head_chars;
use crate::workspace::paths::{Guard, Kind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The most matches that can be asked for.
const MAX_MATCHES: usize = 1000;
/// Characters of a line.
const LINE_CHARS: usize = 500;
/// Bytes of a line that are looked at to show it.
const LINE_BYTES: usize = 4 * (LINE_CHARS + 1);
/// The longest line that is searched.
const LONGEST_LINE: usize = 64 * 1024 * 1024;

/// The tool.
pub struct Grep;

impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep".into(),
            description: "Searches files for a regular expression (Rust syntax, case-sensitive; (?i) ignores case) \
                          and gives file:line:content lines, without node_modules, .git, .next, dist and binary \
                          files."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "description": "The regular expression"},
                    "path": {"type": "string", "description": "A folder or a file (default: the workspace)"},
                    "include": {"type": "string", "description": "Only these files: *.ts, *.{ts,tsx} or *.ts,*.tsx"},
                    "max_results": {"type": "integer", "minimum": 1, "description": "How many matches (default 50, at most 1000)"},
                },
                "required": ["pattern"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| search(&Args::new("grep", &input), context)).boxed()
    }
}

fn search(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let pattern = args.text("pattern")?;
    if pattern.is_empty() {
        return Err("grep: \"pattern\" is empty".into());
    }
    let include = Include::parse(args.optional_text("include")?.unwrap_or_default())?;
    let max = args.count("max_results")?.unwrap_or(context.limits.grep_default_matches).min(MAX_MATCHES);
    let matcher = RegexMatcherBuilder::new()
        .crlf(true)
        .build(pattern)
        .map_err(|error| format!("the pattern is not a valid regular expression: {error}"))?;
    let guard = Arc::new(context.guard());
    let path =
        guard.resolve(args.optional_text("path")?.unwrap_or(".")).map_err(|error| error.to_string())?;
    let (kind, root) = guard.look(&path).map_err(|error| error.to_string())?;
    let mut search = Search::new(&guard, &context.cancel, matcher, max);
    if kind != Kind::Folder {
        search.file(&path).map_err(|error| format!("{}: {error}", guard.shown(&path)))?;
        return Ok(search.answer(None));
    }
    let walked = walk(&root, Purpose::Search, &guard, &context.cancel, |found| {
        if found.kind == Some(Kind::File)
            && include.has(found.path.strip_prefix(&root).unwrap_or(&found.path))
            && search.file(&found.path).is_err()
        {
            search.unread += 1;
        }
        !search.more
    });
    match walked {
        Err(Halt::Stopped) => Err(Halt::Stopped.note()),
        _ if context.cancel.is_cancelled() => Err(Halt::Stopped.note()),
        Err(halt) => Ok(search.answer(Some(halt.note()))),
        Ok(_) => Ok(search.answer(None)),
    }
}

/// Which files are searched.
struct Include {
    /// Each with whether it is about the whole path, not only the name. Empty: all files.
    globs: Vec<(GlobMatcher, bool)>,
}

impl Include {
    /// A glob, or several between commas; a comma in braces or brackets belongs to the glob.
    fn parse(text: &str) -> Result<Self, String> {
        let mut depth = 0_usize;
        let parts = text.split(|character| {
            match character {
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        });
        let globs = parts
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| Ok((compile(part)?, part.contains('/'))))
            .collect::<Result<_, String>>()?;
        Ok(Self { globs })
    }

    fn has(&self, below: &Path) -> bool {
        self.globs.is_empty()
            || self.globs.iter().any(|(glob, whole)| {
                if *whole {
                    glob.is_match(below)
                } else {
                    below.file_name().is_some_and(|name| glob.is_match(name))
                }
            })
    }
}

struct Search<'a> {
    guard: &'a Guard,
    cancel: &'a CancellationToken,
    matcher: RegexMatcher,
    searcher: Searcher,
    max: usize,
    lines: Vec<String>,
    /// Whether there are matches beyond the limit.
    more: bool,
    /// Files that could not be searched.
    unread: usize,
}

impl<'a> Search<'a> {
    fn new(guard: &'a Guard, cancel: &'a CancellationToken, matcher: RegexMatcher, max: usize) -> Self {
        let searcher = SearcherBuilder::new()
            // LF with or without CR, so that `$` also matches before a CR.
            .line_terminator(LineTerminator::crlf())
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LONGEST_LINE))
            .build();
        Self { guard, cancel, matcher, searcher, max, lines: Vec::new(), more: false, unread: 0 }
    }

    fn file(&mut self, path: &Path) -> Result<(), String> {
        let opened = self.guard.open_file(path).map_err(|error| error.to_string())?;
        let source = Stoppable { source: opened.file, cancel: self.cancel };
        let shown = self.guard.shown(path);
        let sink = Lines { shown, found: &mut self.lines, max: self.max, more: &mut self.more };
        self.searcher.search_reader(&self.matcher, source, sink).map_err(|error| error.to_string())
    }

    fn answer(mut self, note: Option<String>) -> String {
        if self.lines.is_empty() {
            self.lines.push("No matches.".into());
        }
        if self.more {
            let max = self.max;
            self.lines.push(format!("[Ended at {max} matches: narrow the search, or raise max_results]"));
        }
        if self.unread > 0 {
            self.lines.push(format!("[Files that could not be searched: {}]", self.unread));
        }
        self.lines.extend(note);
        self.lines.join("\n")
    }
}

/// A file that ends with an error when the session is stopped.
struct Stoppable<'a, R> {
    source: R,
    cancel: &'a CancellationToken,
}

impl<R: Read> Read for Stoppable<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("stopped"));
        }
        self.source.read(buffer)
    }
}

/// Collects the matches of one file.
struct Lines<'a> {
    shown: String,
    found: &'a mut Vec<String>,
    max: usize,
    more: &'a mut bool,
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        if self.found.len() == self.max {
            *self.more = true;
            return Ok(false);
        }
        let bytes = line.bytes();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let content = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_BYTES)]);
        let head = head_chars(&content, LINE_CHARS);
        let mut text = format!("{}:{}:{head}", self.shown, line.line_number().unwrap_or_default());
        if head.len() < content.len() {
            let _ = write!(text, " [line cut: it has {} bytes]", bytes.len());
        }
        self.found.push(text);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
