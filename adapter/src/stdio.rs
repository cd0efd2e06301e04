//! The two line streams to the editor. In: bytes that are no UTF-8 become replacement characters, blank lines
//! are skipped, a line over [`MAX_LINE`] is dropped to its end and stands as one line that is no JSON, so the
//! editor is told and the connection lives on. Out: one line, one write, flushed. What a line means is the
//! protocol crate's business.

use std::io;

use futures_util::{Sink, Stream, sink, stream};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tracing::warn;

/// The longest line that is taken from the editor: the server takes no body over 24 MiB, and JSON may escape.
pub const MAX_LINE: usize = 64 << 20;

/// What stands for a line that was too long. It is no JSON on purpose.
const TOO_LONG: &str = "a line over 64 MiB was dropped";

/// A line buffer above this size is given back after its line.
const KEEP: usize = 64 << 10;

/// The lines of `input`, without their ends and without blank ones, each of at most `max` bytes. An input that
/// cannot be read any more is one that ended.
pub fn lines(
    input: impl AsyncRead + Unpin + Send,
    max: usize,
) -> impl Stream<Item = io::Result<String>> + Send {
    let state = (BufReader::with_capacity(16 << 10, input), Vec::new());
    stream::unfold(state, move |(mut input, mut line)| async move {
        loop {
            let whole = match read_line(&mut input, &mut line, max).await {
                Ok(whole) => whole?,
                Err(error) => {
                    warn!("stdin cannot be read any more: {error}");
                    return None;
                }
            };
            let text = String::from_utf8_lossy(&line);
            let text = if whole { text.trim_matches(['\r', '\n', ' ', '\t', '\u{feff}']) } else { TOO_LONG };
            if text.is_empty() {
                continue;
            }
            let text = text.to_owned();
            if line.capacity() > KEEP {
                line = Vec::new();
            }
            return Some((Ok(text), (input, line)));
        }
    })
}

/// Reads up to the next `\n` into `line`. `None` at the end of input, `Some(false)` when the line was longer
/// than `max` and went to waste.
async fn read_line(
    input: &mut (impl tokio::io::AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    max: usize,
) -> io::Result<Option<bool>> {
    line.clear();
    let mut whole = true;
    let mut any = false;
    loop {
        let available = match input.fill_buf().await {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            // A last line without an end is a line all the same.
            return Ok(any.then_some(whole));
        }
        any = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if whole && line.len() + part.len() <= max {
            line.extend_from_slice(part);
        } else {
            whole = false;
            line.clear();
        }
        let used = end.map_or(available.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(Some(whole));
        }
    }
}

/// Writes each line with its `\n`, flushes, and calls `written` after it.
pub fn line_sink(
    output: impl AsyncWrite + Unpin + Send,
    written: impl Fn() + Send,
) -> impl Sink<String, Error = io::Error> + Send {
    sink::unfold((output, written), |(mut output, written), mut line: String| async move {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
        written();
        Ok((output, written))
    })
}

/// Whether a failed write means that nobody reads any more.
pub fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::WriteZero
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt as _;
    use proptest::prelude::*;

    async fn all(input: &[u8], max: usize) -> Vec<String> {
        lines(input, max).try_collect().await.expect("reads")
    }

    #[tokio::test]
    async fn line_ends_of_both_kinds_and_blank_lines_are_tolerated() {
        assert_eq!(
            all(b"{\"a\":1}\r\n\r\n\n  \n{\"b\":2}\n{\"c\":3}", 100).await,
            ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]
        );
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_do_not_end_the_stream() {
        assert_eq!(all(b"\xff\xfe\n{}\n", 100).await, ["\u{fffd}\u{fffd}", "{}"]);
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_dropped_to_its_end_and_told() {
        let mut input = vec![b'x'; 101];
        input.extend_from_slice(b"\n{}\n");
        assert_eq!(all(&input, 100).await, [TOO_LONG, "{}"]);
        assert!(serde_json::from_str::<serde_json::Value>(TOO_LONG).is_err());
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_taken() {
        assert_eq!(all(&[b'y'; 100], 100).await, ["y".repeat(100)]);
    }

    proptest! {
        #[test]
        fn lines_come_out_as_they_went_in_however_they_are_cut(
            given in proptest::collection::vec("[a-z{}\u{e9}\u{4f60}]{1,30}", 0..12),
            step in 1usize..40,
        ) {
            let bytes = given.join("\n").into_bytes();
            let chunks: Vec<_> = bytes.chunks(step).map(|part| Ok::<_, io::Error>(bytes::Bytes::copy_from_slice(part))).collect();
            let reader = tokio_util::io::StreamReader::new(stream::iter(chunks));
            let got: Vec<String> = futures_util::FutureExt::now_or_never(lines(reader, 1 << 10).try_collect())
                .expect("no waiting on memory")
                .expect("reads");
            prop_assert_eq!(got, given);
        }
    }
}
