//! A parser for `text/event-stream` that takes bytes as they come: cut anywhere, inside a character too, with
//! `\n`, `\r\n` or `\r` at line ends. Promises each event once, with the `id:` that its own block carried, and
//! that no event grows past the limit. Comments are told apart because a keepalive is one. What an event means
//! is not its business.

/// The size at which an event is refused, in bytes.
pub const MAX_EVENT: usize = 64 << 20;

/// One thing that the stream said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A comment line; servers send them to keep a link alive.
    Comment,
    /// The data of one event, its lines joined with `\n`, and the `id:` of its block.
    Event {
        /// The joined data; bytes that are no UTF-8 are replaced.
        data: String,
        /// The place in the stream, where the server numbers its events.
        id: Option<String>,
    },
}

/// An event reached the limit. The stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent a frame of {} MiB or more", MAX_EVENT >> 20)]
pub struct TooLong;

/// The state between two pieces of a stream.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    after_cr: bool,
    first_line: bool,
}

impl Parser {
    /// A parser at the start of a stream that refuses events of `limit` bytes and more.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            id: None,
            after_cr: false,
            first_line: true,
        }
    }

    /// Takes the next bytes and adds what they complete to `out`. After an error the parser is of no use.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<Block>) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.data.len() + part.len() >= self.limit {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(out);
        }
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<Block>) {
        let line = std::mem::take(&mut self.line);
        let mut rest = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            rest = rest.strip_prefix("\u{feff}".as_bytes()).unwrap_or(rest);
        }
        if rest.is_empty() {
            self.end_block(out);
        } else if rest[0] == b':' {
            out.push(Block::Comment);
        } else {
            let colon = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
            let (field, value) = (&rest[..colon], rest.get(colon + 1..).unwrap_or_default());
            let value = value.strip_prefix(b" ").unwrap_or(value);
            match field {
                b"data" => {
                    if self.has_data {
                        self.data.push(b'\n');
                    }
                    self.has_data = true;
                    self.data.extend_from_slice(value);
                }
                b"id" if !value.contains(&0) => {
                    self.id = Some(String::from_utf8_lossy(value).into_owned()).filter(|id| !id.is_empty());
                }
                _ => {}
            }
        }
        // Keeps the allocation for the next line, unless this one was huge.
        if line.capacity() <= 64 << 10 {
            self.line = line;
            self.line.clear();
        }
    }

    fn end_block(&mut self, out: &mut Vec<Block>) {
        let (data, id) = (std::mem::take(&mut self.data), self.id.take());
        self.has_data = false;
        if !data.is_empty() {
            let data = String::from_utf8(data)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
            out.push(Block::Event { data, id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn parsed(pieces: &[&[u8]]) -> Vec<Block> {
        let mut parser = Parser::new(MAX_EVENT);
        let mut out = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut out).expect("short");
        }
        out
    }

    fn event(data: &str) -> Block {
        Block::Event { data: data.into(), id: None }
    }

    #[rstest]
    #[case::one(&[b"data: {\"a\":1}\n\n".as_slice()], vec![event("{\"a\":1}")])]
    #[case::no_space(&[b"data:x\n\n".as_slice()], vec![event("x")])]
    #[case::cut_inside(&[b"da".as_slice(), b"ta: {\"a\"", b":1}\n", b"\n"], vec![event("{\"a\":1}")])]
    #[case::cut_in_a_character(&[b"data: \xe4\xbd".as_slice(), b"\xa0\n\n"], vec![event("\u{4f60}")])]
    #[case::crlf(&[b"data: x\r".as_slice(), b"\n\r", b"\ndata: y\r\n\r\n"], vec![event("x"), event("y")])]
    #[case::cr(&[b"data: x\r\rdata: y\r\r".as_slice()], vec![event("x"), event("y")])]
    #[case::several_lines(&[b"data: a\ndata: b\ndata\n\n".as_slice()], vec![event("a\nb\n")])]
    #[case::other_fields(&[b"event: e\nretry: 5\nwhat\ndata: x\n\n".as_slice()], vec![event("x")])]
    #[case::no_data(&[b"data: \n\nid: 7\n\n".as_slice()], vec![])]
    #[case::unfinished(&[b"data: x\n".as_slice()], vec![])]
    #[case::mark_at_the_start(&[b"\xef\xbb\xbfdata: x\n\n".as_slice()], vec![event("x")])]
    #[case::bad_bytes(&[b"data: \xff\n\n".as_slice()], vec![event("\u{fffd}")])]
    fn a_stream_is_read_as_the_standard_says(#[case] pieces: &[&[u8]], #[case] expected: Vec<Block>) {
        assert_eq!(parsed(pieces), expected);
    }

    #[test]
    fn an_id_belongs_to_its_own_block_only() {
        assert_eq!(
            parsed(&[b"id: r.1\ndata: x\n\ndata: y\n\nid:\ndata: z\n\n"]),
            [Block::Event { data: "x".into(), id: Some("r.1".into()) }, event("y"), event("z")]
        );
    }

    #[test]
    fn a_keepalive_is_seen_even_when_it_is_cut_in_two() {
        assert_eq!(parsed(&[b": keep", b"alive\n\n"]), [Block::Comment]);
    }

    #[test]
    fn an_event_at_the_limit_is_refused_and_one_below_is_not() {
        let mut parser = Parser::new(20);
        let mut out = Vec::new();
        assert_eq!(parser.push(b"data: 3456789012345\n\n", &mut out), Ok(()));
        assert_eq!(parser.push(b"data: 34567890123456", &mut out), Err(TooLong));
        let mut parser = Parser::new(20);
        for _ in 0..9 {
            let _ = parser.push(b"data: 1\n", &mut out);
        }
        assert_eq!(parser.push(b"data: 1\n", &mut out), Err(TooLong), "many short lines are one event too");
    }

    proptest! {
        #[test]
        fn where_a_stream_is_cut_makes_no_difference(
            texts in proptest::collection::vec("[a-z :\u{e9}\u{4f60}]{1,12}", 1..6),
            end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            step in 1usize..9,
        ) {
            let mut stream = String::new();
            let mut expected = Vec::new();
            for (n, text) in texts.iter().enumerate() {
                stream.push_str(&["id: r.", &n.to_string(), end, "data: x", text, end, "data: ", text, end, end, ": k", end].concat());
                expected.push(Block::Event { data: format!("x{text}\n{text}"), id: Some(format!("r.{n}")) });
                expected.push(Block::Comment);
            }
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(step).collect();
            prop_assert_eq!(parsed(&pieces), expected);
        }
    }
}
