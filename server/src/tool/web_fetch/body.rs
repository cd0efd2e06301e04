//! The bytes of an answer as text. Promises that no more is held than is shown, that text is cut on a character
//! boundary with a note, and that what is no text is named instead of shown.

use crate::text::head_bytes;
use crate::tool::file_read::{is_binary, is_utf16};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use http::header::{self, HeaderMap};
use std::fmt::Write;

/// Types that are no text, whatever their bytes look like.
const BINARY: [&str; 12] = [
    "application/pdf",
    "application/zip",
    "application/gzip",
    "application/x-gzip",
    "application/x-tar",
    "application/x-bzip2",
    "application/x-xz",
    "application/zstd",
    "application/x-7z-compressed",
    "application/vnd.rar",
    "application/wasm",
    "application/java-archive",
];
/// Types beside `text/…`, `…+json` and `…+xml` whose bytes are text, also where some of them are not UTF-8.
const TEXT: [&str; 12] = [
    "application/json",
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/x-javascript",
    "application/x-ndjson",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/x-sh",
    "application/x-www-form-urlencoded",
];

/// What the headers tell of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text, in this encoding where one was named.
    Text(Option<&'static Encoding>),
    /// The bytes must tell.
    Unknown,
    /// No text.
    Binary,
    /// Compressed, although that was not asked for.
    Compressed,
}

impl Kind {
    /// By the headers of an answer.
    pub fn of(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let coding = value(header::CONTENT_ENCODING).unwrap_or_default().trim().to_ascii_lowercase();
        if !coding.is_empty() && coding != "identity" {
            return Self::Compressed;
        }
        let content_type = value(header::CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        let essence = crate::mime::essence(&content_type);
        let charset = content_type.split(';').skip(1).find_map(|part| {
            let (name, value) = part.split_once('=')?;
            (name.trim() == "charset").then(|| value.trim().trim_matches(['"', '\'']))
        });
        let encoding = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
        let media = ["image/", "audio/", "video/", "font/"].iter().any(|kind| essence.starts_with(kind));
        if essence.starts_with("text/")
            || essence.ends_with("+json")
            || essence.ends_with("+xml")
            || TEXT.contains(&essence)
        {
            Self::Text(encoding)
        } else if media || BINARY.contains(&essence) {
            Self::Binary
        } else if encoding.is_some() {
            Self::Text(encoding)
        } else {
            Self::Unknown
        }
    }
}

/// A body on its way in.
pub struct Reading {
    kind: Kind,
    limit: usize,
    bytes: Vec<u8>,
    /// Whether there is more than `limit`.
    more: bool,
    /// Whether the end was seen.
    ended: bool,
}

impl Reading {
    /// Reads at most `limit` bytes.
    pub fn new(kind: Kind, limit: usize) -> Self {
        Self { kind, limit, bytes: Vec::new(), more: false, ended: false }
    }

    /// Whether more would be shown.
    pub fn wants_more(&self) -> bool {
        matches!(self.kind, Kind::Text(_) | Kind::Unknown) && !self.more
    }

    /// Takes what came.
    pub fn push(&mut self, chunk: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.more |= chunk.len() > room;
        self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }

    /// Tells that the body is whole.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What is shown. `length` is what the answer says of its length.
    pub fn into_text(self, length: Option<u64>) -> String {
        let size = match length {
            Some(length) => format!("{length} bytes"),
            None if self.ended => format!("{} bytes", self.bytes.len()),
            None => "of unknown length".to_owned(),
        };
        let hidden = |what: &str| format!("[the body is {what}, {size}; web_fetch shows only text]");
        let encoding = match self.kind {
            Kind::Compressed => return hidden("compressed, although that was not asked for"),
            Kind::Binary => return hidden("binary"),
            Kind::Text(encoding) => encoding,
            Kind::Unknown => None,
        };
        if self.bytes.is_empty() {
            return "(no body)".to_owned();
        }
        let wide =
            is_utf16(&self.bytes) || encoding.is_some_and(|known| [UTF_16LE, UTF_16BE].contains(&known));
        if (!wide && is_binary(&self.bytes)) || (self.kind == Kind::Unknown && !wide && !self.is_utf8()) {
            return hidden("binary");
        }
        self.decode(encoding.unwrap_or(UTF_8), length)
    }

    /// Whether the bytes are UTF-8, a character that the cut went through aside.
    fn is_utf8(&self) -> bool {
        match std::str::from_utf8(&self.bytes) {
            Ok(_) => true,
            Err(error) => !self.ended && error.error_len().is_none(),
        }
    }

    fn decode(self, encoding: &'static Encoding, length: Option<u64>) -> String {
        // A mark at the start of the bytes beats what the headers say.
        let mut decoder = encoding.new_decoder();
        let room = decoder.max_utf8_buffer_length(self.bytes.len()).unwrap_or(self.limit * 3);
        let mut text = String::with_capacity(room);
        let (_, _, broken) = decoder.decode_to_string(&self.bytes, &mut text, self.ended);
        let shown = head_bytes(&text, self.limit).len();
        let cut = self.more || shown < text.len();
        text.truncate(shown);
        if broken {
            text.push_str("\n[Some bytes are no text in this encoding; each is shown as \u{fffd}]");
        }
        if cut {
            let of = length.map_or(String::new(), |length| format!(" of {length}"));
            let _ = write!(text, "\n[Content truncated: the first {} bytes{of} are shown]", self.bytes.len());
        }
        text
    }
}
