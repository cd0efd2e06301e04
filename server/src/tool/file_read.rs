//! `file_read`: lines of a text file with their numbers. Reads as a stream: neither a huge file nor a huge line
//! is held in memory.

use super::args::Args;
use super::{Context, Output, Tool, blocking};
use crate::model::ToolSpec;
use crate::text::head_chars;
use encoding_rs_io::DecodeReaderBytesBuilder;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::io::{BufRead, BufReader, Cursor, Read};
use tokio_util::sync::CancellationToken;

/// Lines when `limit` is not given.
const DEFAULT_LIMIT: usize = 2000;
/// A bigger file is read only by range.
const WHOLE_FILE_LIMIT: u64 = 2 * 1024 * 1024;
/// Characters of a line.
const LINE_CHARS: usize = 2000;
/// Bytes of a line that are kept: that many characters and one more, each of four bytes.
const LINE_BYTES: usize = 4 * (LINE_CHARS + 1);
/// Bytes of an answer.
const OUTPUT_BYTES: usize = 256 * 1024;
/// Where a NUL tells a binary file.
const SNIFF_BYTES: u64 = 8 * 1024;

/// The tool.
pub struct FileRead;

impl Tool for FileRead {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "file_read".into(),
            description:
                "Reads a text file. The answer has each line behind its number, as `cat -n` prints it. \
                          Files over 2 MB are read in ranges: give offset and limit."
                    .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Relative to the workspace, absolute, or ~/ for the home folder"},
                    "offset": {"type": "integer", "minimum": 1, "description": "The first line, from 1 (default 1)"},
                    "limit": {"type": "integer", "minimum": 1, "description": "How many lines (default 2000)"},
                },
                "required": ["path"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        blocking::run(context, move |context| read(&Args::new("file_read", &input), context)).boxed()
    }
}

fn read(args: &Args<'_>, context: &Context) -> Result<String, String> {
    let path = args.filled_text("path")?;
    let (offset, limit) = (args.count("offset")?, args.count("limit")?);
    let whole = offset.is_none() && limit.is_none();
    let guard = context.guard();
    let path = guard.resolve(path).map_err(|error| error.to_string())?;
    let opened = guard.open_file(&path).map_err(|error| error.to_string())?;
    let shown = guard.shown(&path);
    let size = opened.metadata.len();
    if whole && size > WHOLE_FILE_LIMIT {
        return Err(format!(
            "{shown} has {size} bytes, too many to read at once: give offset and limit, or find the place with grep"
        ));
    }
    let failed = |error: std::io::Error| format!("{shown}: {error}");
    let mut file = opened.file;
    let mut start = Vec::new();
    file.by_ref().take(SNIFF_BYTES).read_to_end(&mut start).map_err(failed)?;
    if is_binary(&start) {
        return Err(format!("{shown} is a binary file ({size} bytes); file_read shows only text"));
    }
    let utf16 = is_utf16(&start);
    let source = Cursor::new(start).chain(file);
    // UTF-16 with its mark becomes UTF-8 on the way; anything else passes as it is, without a mark.
    let source = DecodeReaderBytesBuilder::new().utf8_passthru(true).strip_bom(true).build(source);
    let page = Page { first: offset.unwrap_or(1), limit: limit.unwrap_or(DEFAULT_LIMIT) };
    let mut text = page.read(BufReader::new(source), &context.cancel).map_err(|error| match error {
        PageError::Stopped => "stopped".to_owned(),
        PageError::Beyond { lines } => {
            format!("{shown} has {lines} lines; offset {} is beyond its end", page.first)
        }
        PageError::Io(error) => failed(error),
    })?;
    if utf16 {
        text.push_str("\n[The file is UTF-16; it is shown as text, but file_edit cannot change it]");
    }
    Ok(text)
}

/// Whether the mark of UTF-16 stands at the start.
pub(super) fn is_utf16(start: &[u8]) -> bool {
    start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff])
}

/// Whether a file with this start is no text.
pub(super) fn is_binary(start: &[u8]) -> bool {
    let start = &start[..start.len().min(SNIFF_BYTES as usize)];
    start.contains(&0) && !is_utf16(start)
}

struct Page {
    first: usize,
    limit: usize,
}

#[derive(Debug)]
enum PageError {
    Stopped,
    Beyond { lines: usize },
    Io(std::io::Error),
}

impl Page {
    fn read(&self, mut source: impl BufRead, cancel: &CancellationToken) -> Result<String, PageError> {
        let mut text = String::new();
        let mut strange = false;
        let mut number = 0;
        let mut shown = 0;
        loop {
            let wanted = number + 1 >= self.first && shown < self.limit && text.len() < OUTPUT_BYTES;
            let keep = if wanted { LINE_BYTES } else { 0 };
            let Some(line) = Line::read(&mut source, keep, cancel)? else { break };
            number += 1;
            if number < self.first {
                continue;
            }
            if !wanted {
                let _ = write!(text, "\n[The file goes on: continue with offset {number}]");
                break;
            }
            shown += 1;
            if shown > 1 {
                text.push('\n');
            }
            let _ = write!(text, "{number:>6}\t");
            strange |= line.show(&mut text);
        }
        if number == 0 && self.first == 1 {
            return Ok("(the file is empty)".into());
        }
        if shown == 0 {
            return Err(PageError::Beyond { lines: number });
        }
        if strange {
            text.push_str("\n[Some bytes are not UTF-8; they are shown as Latin-1]");
        }
        Ok(text)
    }
}

/// One line without its end: the first bytes, and how many there were.
struct Line {
    bytes: Vec<u8>,
    total: usize,
}

impl Line {
    /// The next line, of which `keep` bytes at most are held; `None` at the end.
    fn read(
        source: &mut impl BufRead,
        keep: usize,
        cancel: &CancellationToken,
    ) -> Result<Option<Self>, PageError> {
        let mut line = Self { bytes: Vec::new(), total: 0 };
        let mut any = false;
        loop {
            if cancel.is_cancelled() {
                return Err(PageError::Stopped);
            }
            let chunk = source.fill_buf().map_err(PageError::Io)?;
            if chunk.is_empty() {
                return Ok(any.then_some(line));
            }
            any = true;
            let end = memchr::memchr(b'\n', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let room = keep.saturating_sub(line.bytes.len()).min(part.len());
            line.bytes.extend_from_slice(&part[..room]);
            line.total += part.len();
            let used = end.map_or(chunk.len(), |end| end + 1);
            source.consume(used);
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }

    /// Appends the line to `text`; whether it had bytes that are not UTF-8.
    fn show(&self, text: &mut String) -> bool {
        let cut = self.bytes.len() < self.total;
        let mut bytes = self.bytes.as_slice();
        if !cut {
            bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        }
        let (line, strange) = decode(bytes, cut);
        let head = head_chars(&line, LINE_CHARS);
        text.push_str(head);
        if cut || head.len() < line.len() {
            let _ = write!(text, " [line cut: it has {} bytes]", self.total);
        }
        strange
    }
}

/// UTF-8 where it is, Latin-1 where it is not; whether there was any of that. With `cut`, a character that the
/// end cuts through is left out.
fn decode(bytes: &[u8], cut: bool) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len());
    let mut strange = false;
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        if cut && chunks.peek().is_none() {
            break;
        }
        for &byte in chunk.invalid() {
            strange = true;
            // The control characters of 0x80 to 0x9f say nothing to anyone.
            text.push(if byte < 0xa0 { char::REPLACEMENT_CHARACTER } else { byte as char });
        }
    }
    (text, strange)
}

#[cfg(test)]
mod tests;
