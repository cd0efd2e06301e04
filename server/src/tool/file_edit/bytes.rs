//! The edit itself, from bytes to bytes.

use encoding_rs::SHIFT_JIS;
use memchr::memmem;

/// How many lines an error names.
const LINES_NAMED: usize = 10;

/// One edit.
pub struct Edit<'a> {
    /// The whole file.
    pub content: &'a [u8],
    /// The text to find; not empty.
    pub old: &'a str,
    /// The text to put there.
    pub new: &'a str,
    /// Whether more than one place is meant.
    pub replace_all: bool,
    /// How many bytes the result may have.
    pub limit: usize,
}

/// Why nothing was changed.
#[derive(Debug, PartialEq, Eq)]
pub enum EditError {
    /// Not found.
    Absent {
        /// Probably because file and text are in different encodings.
        foreign: bool,
    },
    /// Found more than once.
    Several {
        /// How often.
        count: usize,
        /// On which lines, from 1; the first few.
        lines: Vec<usize>,
    },
    /// The first byte of the match may be the second half of a character.
    InsideCharacter {
        /// On which line, from 1.
        line: usize,
    },
    /// UTF-8 would be written into a file of another encoding.
    MixesEncodings,
    /// The result is over the limit.
    TooBig,
}

/// One place where the old text is.
struct Place {
    start: usize,
    end: usize,
    /// Whether the new text's line ends become CRLF here.
    crlf: bool,
}

impl Edit<'_> {
    /// The new content, and in how many places it differs.
    pub fn apply(&self) -> Result<(Vec<u8>, usize), EditError> {
        let places = self.find();
        let is_utf8 = std::str::from_utf8(self.content).is_ok();
        if places.is_empty() {
            return Err(EditError::Absent { foreign: !is_utf8 && !self.old.is_ascii() });
        }
        if places.len() > 1 && !self.replace_all {
            let lines = places.iter().take(LINES_NAMED).map(|place| self.line_of(place.start)).collect();
            return Err(EditError::Several { count: places.len(), lines });
        }
        if !is_utf8 {
            if !self.new.is_ascii() && self.old.is_ascii() {
                return Err(EditError::MixesEncodings);
            }
            let shift_jis =
                SHIFT_JIS.decode_without_bom_handling_and_without_replacement(self.content).is_some();
            if let Some(place) = places.iter().find(|place| self.may_begin_inside(place.start, shift_jis)) {
                return Err(EditError::InsideCharacter { line: self.line_of(place.start) });
            }
        }
        self.build(&places).map(|changed| (changed, places.len()))
    }

    fn find(&self) -> Vec<Place> {
        let old = self.old.as_bytes();
        let old_has_line_end = memchr::memchr(b'\n', old).is_some();
        let mut places: Vec<Place> = memmem::find_iter(self.content, old)
            .map(|start| Place { start, end: start + old.len(), crlf: false })
            .collect();
        if old_has_line_end {
            let old_crlf = with_crlf(self.old);
            if old_crlf.as_bytes() != old {
                places.extend(memmem::find_iter(self.content, old_crlf.as_bytes()).map(|start| Place {
                    start,
                    end: start + old_crlf.len(),
                    crlf: true,
                }));
                places.sort_by_key(|place| place.start);
                let mut end = 0;
                places.retain(|place| {
                    let free = place.start >= end;
                    if free {
                        end = place.end;
                    }
                    free
                });
            }
        } else if memchr::memchr(b'\n', self.new.as_bytes()).is_some() {
            // The old text says nothing of line ends: the new one gets those of the place.
            for place in &mut places {
                place.crlf = self.line_ends_with_crlf(place.end);
            }
        }
        places
    }

    /// Whether the line at `at` ends with CRLF; the last line counts as the one before it.
    fn line_ends_with_crlf(&self, at: usize) -> bool {
        let end = memchr::memchr(b'\n', &self.content[at..])
            .map(|next| at + next)
            .or_else(|| memchr::memrchr(b'\n', &self.content[..at]));
        end.is_some_and(|end| end > 0 && self.content[end - 1] == b'\r')
    }

    fn line_of(&self, at: usize) -> usize {
        1 + memchr::memchr_iter(b'\n', &self.content[..at]).count()
    }

    /// In GBK, Shift-JIS and Big5 the second byte of a character may look like an ASCII letter. In a run of high
    /// bytes two are a character, so after an odd number of them the next byte may belong to the last. Shift-JIS also
    /// has characters of one high byte; which is which is looked at where the file can be in it.
    fn may_begin_inside(&self, start: usize, shift_jis: bool) -> bool {
        let high = self.content[..start].iter().rev().take_while(|byte| **byte >= 0x80);
        let run = high.count();
        let high = &self.content[start - run..start];
        let first = self.content[start];
        let may_be_second = first >= 0x80 || (0x40..=0x7e).contains(&first) || first.is_ascii_digit();
        // Complete UTF-8 characters before the place are characters of their own.
        let odd = run % 2 == 1 || shift_jis && ends_with_a_half(high);
        odd && may_be_second && std::str::from_utf8(high).is_err()
    }

    fn build(&self, places: &[Place]) -> Result<Vec<u8>, EditError> {
        let new_crlf = with_crlf(self.new);
        let text = |place: &Place| if place.crlf { new_crlf.as_bytes() } else { self.new.as_bytes() };
        let removed: usize = places.iter().map(|place| place.end - place.start).sum();
        let added: usize = places.iter().map(|place| text(place).len()).sum();
        let size = self.content.len() - removed + added;
        if size > self.limit {
            return Err(EditError::TooBig);
        }
        let mut changed = Vec::with_capacity(size);
        let mut from = 0;
        for place in places {
            changed.extend_from_slice(&self.content[from..place.start]);
            changed.extend_from_slice(text(place));
            from = place.end;
        }
        changed.extend_from_slice(&self.content[from..]);
        Ok(changed)
    }
}

/// Whether the last of these bytes is the first half of a character of Shift-JIS.
fn ends_with_a_half(high: &[u8]) -> bool {
    let mut bytes = high.iter();
    while let Some(byte) = bytes.next() {
        if matches!(byte, 0x81..=0x9f | 0xe0..=0xfc) && bytes.next().is_none() {
            return true;
        }
    }
    false
}

/// The text with CRLF where it has a lone LF.
fn with_crlf(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = '\0';
    for character in text.chars() {
        if character == '\n' && before != '\r' {
            out.push('\r');
        }
        out.push(character);
        before = character;
    }
    out
}
