//! `grep`: lines of files that match a regular expression, on ripgrep's libraries. Ignore files are not honoured:
//! what is skipped is the list of [`super::walk`], binary files, and what is hidden.

use super::args::Args;
use super::glob::compile;
use super::walk::{Halt, Next, Watch, walk_on_threads};
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use crate::text::head_chars;
use crate::workspace::paths::{Guard, Kind, PathError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use globset::GlobMatcher;
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most matches that can be asked for.
const MAX_MATCHES: usize = 1000;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 4096;
/// Bytes that a compiled pattern may take: a search takes the longer the larger it is, and cannot be stopped in the
/// middle of a line.
const REGEX_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a thread remembers while it searches.
const CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Characters of what is wrong with a pattern.
const ERROR_CHARS: usize = 1000;
/// Bytes of all globs of an `include`.
const INCLUDE_BYTES: usize = 4096;
/// Characters of a line.
const LINE_CHARS: usize = 500;
/// Bytes of a line that are looked at to show it.
const LINE_BYTES: usize = 4 * (LINE_CHARS + 1);
/// A line that no thread holds more than, so that many threads need little memory.
const LONG_LINE: usize = 4 * 1024 * 1024;
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
    if pattern.len() > MAX_PATTERN {
        return Err(format!("grep: \"pattern\" has {} bytes; {MAX_PATTERN} are the most", pattern.len()));
    }
    let include = Include::parse(args.optional_text("include")?.unwrap_or_default())?;
    let max = args.count("max_results")?.unwrap_or(context.limits.grep_default_matches).min(MAX_MATCHES);
    let matcher = RegexMatcherBuilder::new()
        .crlf(true)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(CACHE_BYTES)
        .build(pattern)
        .map_err(|error| {
            // The text holds the pattern, which may be long.
            let error = error.to_string();
            format!("the pattern is not a valid regular expression: {}", head_chars(&error, ERROR_CHARS))
        })?;
    let guard = Arc::new(context.guard());
    let path =
        guard.resolve(args.optional_text("path")?.unwrap_or(".")).map_err(|error| error.to_string())?;
    let (kind, root) = guard.look(&path).map_err(|error| error.to_string())?;
    let watch = Watch::new(&context.cancel);
    let searchers = Searchers::new(matcher, &watch, max);
    let found = Found::new(max);
    let walked = if kind == Kind::Folder {
        walk_on_threads(&root, &guard, &watch, || {
            let mut searcher = searchers.one();
            let (root, guard, include, found) = (&root, &guard, &include, &found);
            move |place| {
                if found.is_beyond(&place.path) {
                    return Next::Past;
                }
                let below = place.path.strip_prefix(root).unwrap_or(&place.path);
                if place.kind == Some(Kind::File) && include.has(below) {
                    let open = || {
                        if place.is_link {
                            guard.open_file(&place.path).map(|opened| opened.file)
                        } else {
                            guard.open_walked(&place.path)
                        }
                    };
                    match searcher.file(open) {
                        Ok(lines) => found.add(place.path, lines),
                        Err(_) => found.add_unread(),
                    }
                }
                Next::On
            }
        })
    } else {
        let open = || guard.open_file(&path).map(|opened| opened.file);
        match searchers.one().file(open) {
            Ok(lines) => found.add(path.clone(), lines),
            Err(Failure::Path(error)) => return Err(error.to_string()),
            Err(Failure::Read(error)) => return Err(format!("{}: {error}", guard.shown(&path))),
            // What it means for the answer is said below.
            Err(Failure::Halted) => {}
        }
        Ok(())
    };
    match walked.and_then(|()| watch.check()) {
        Err(Halt::Stopped) => Err(Halt::Stopped.note()),
        Err(halt) => Ok(found.answer(&guard, Some(halt.note()))),
        Ok(()) => Ok(found.answer(&guard, None)),
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
        if text.len() > INCLUDE_BYTES {
            return Err(format!("grep: \"include\" has {} bytes; {INCLUDE_BYTES} are the most", text.len()));
        }
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

/// What came of a search, while several threads add to it. The answer is the same in whichever order they do: the
/// first matches by the order of the paths.
struct Found {
    max: usize,
    best: Mutex<Best>,
    /// Whether there are more matches than wanted, so that a path may be beyond them all.
    full: AtomicBool,
}

#[derive(Default)]
struct Best {
    /// The lines of the first files: just so many that they hold more than wanted, where there are.
    files: BTreeMap<PathBuf, Vec<String>>,
    lines: usize,
    /// Files that could not be searched.
    unread: usize,
}

impl Found {
    fn new(max: usize) -> Self {
        Self { max, best: Mutex::default(), full: AtomicBool::new(false) }
    }

    fn best(&self) -> MutexGuard<'_, Best> {
        self.best.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing at this path, or below it, can be in the answer.
    fn is_beyond(&self, path: &Path) -> bool {
        // Paths compare part by part, which is the order of a sorted walk: a folder comes before what is in it.
        self.full.load(Ordering::Acquire)
            && self.best().files.last_key_value().is_some_and(|(last, _)| path > last.as_path())
    }

    fn add(&self, path: PathBuf, lines: Vec<String>) {
        if lines.is_empty() {
            return;
        }
        let mut best = self.best();
        best.lines += lines.len();
        best.files.insert(path, lines);
        while let Some(last) = best.files.last_entry() {
            let lines = last.get().len();
            if best.lines - lines <= self.max {
                break;
            }
            best.files.pop_last();
            best.lines -= lines;
        }
        if best.lines > self.max {
            self.full.store(true, Ordering::Release);
        }
    }

    fn add_unread(&self) {
        self.best().unread += 1;
    }

    fn answer(self, guard: &Guard, note: Option<String>) -> String {
        let max = self.max;
        let best = self.best.into_inner().unwrap_or_else(PoisonError::into_inner);
        let of_file = |(path, lines): (PathBuf, Vec<String>)| {
            let shown = guard.shown(&path);
            lines.into_iter().map(move |line| format!("{shown}:{line}"))
        };
        let mut lines: Vec<String> = best.files.into_iter().flat_map(of_file).take(max).collect();
        if lines.is_empty() {
            lines.push("No matches.".into());
        }
        if best.lines > max {
            lines.push(format!("[Ended at {max} matches: narrow the search, or raise max_results]"));
        } else if best.unread > 0 {
            // Of a search that ended early nobody knows how many there are.
            lines.push(format!("[Files that could not be searched: {}]", best.unread));
        }
        lines.extend(note);
        lines.join("\n")
    }
}

/// Why a file was not searched.
enum Failure {
    Path(PathError),
    Read(io::Error),
    /// The search as a whole ends.
    Halted,
}

/// Makes the searchers of one search, one for each thread.
struct Searchers<'a> {
    matcher: RegexMatcher,
    watch: &'a Watch,
    max: usize,
    /// Held while a file with a long line is searched, which takes as much memory as that line.
    long: Mutex<()>,
}

impl<'a> Searchers<'a> {
    fn new(matcher: RegexMatcher, watch: &'a Watch, max: usize) -> Self {
        Self { matcher, watch, max, long: Mutex::default() }
    }

    fn one(&'a self) -> FileSearcher<'a> {
        FileSearcher { searcher: new_searcher(LONG_LINE), matcher: self.matcher.clone(), of: self }
    }
}

fn new_searcher(longest_line: usize) -> Searcher {
    SearcherBuilder::new()
        // LF with or without CR, so that `$` also matches before a CR.
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(longest_line))
        .build()
}

/// The searcher of one thread.
struct FileSearcher<'a> {
    searcher: Searcher,
    matcher: RegexMatcher,
    of: &'a Searchers<'a>,
}

impl FileSearcher<'_> {
    /// The matches of a file, at most one more than wanted.
    fn file(&mut self, open: impl Fn() -> Result<File, PathError>) -> Result<Vec<String>, Failure> {
        let Self { searcher, matcher, of } = self;
        let search = |searcher: &mut Searcher, file: File| {
            let source = Watched { source: file, watch: of.watch };
            let mut sink = Lines { found: Vec::new(), max: of.max };
            searcher.search_reader(&*matcher, source, &mut sink).map(|()| sink.found)
        };
        let file = open().map_err(Failure::Path)?;
        if let Ok(lines) = search(searcher, file) {
            return Ok(lines);
        }
        // Most likely a line is long. The file is read anew, since a part of it has gone by.
        let _alone = of.long.lock().unwrap_or_else(PoisonError::into_inner);
        of.watch.check().map_err(|_| Failure::Halted)?;
        let file = open().map_err(Failure::Path)?;
        let lines = search(&mut new_searcher(LONGEST_LINE), file);
        of.watch.check().map_err(|_| Failure::Halted)?;
        lines.map_err(Failure::Read)
    }
}

/// A file that ends with an error when the search must end.
struct Watched<'a> {
    source: File,
    watch: &'a Watch,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.watch.check().map_err(|halt| io::Error::other(halt.note()))?;
        self.source.read(buffer)
    }
}

/// Collects the matches of one file, as `number:content`.
struct Lines {
    found: Vec<String>,
    max: usize,
}

impl Sink for &mut Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        let bytes = line.bytes();
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let content = String::from_utf8_lossy(&bytes[..bytes.len().min(LINE_BYTES)]);
        let head = head_chars(&content, LINE_CHARS);
        let mut text = format!("{}:{head}", line.line_number().unwrap_or_default());
        if head.len() < content.len() {
            let _ = write!(text, " [line cut: it has {} bytes]", bytes.len());
        }
        self.found.push(text);
        // One more than wanted tells that there are more.
        Ok(self.found.len() <= self.max)
    }
}

#[cfg(test)]
mod tests;
