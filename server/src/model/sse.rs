//! Bytes of an answer to server-sent events. Promises: the same events wherever the bytes are cut; CR, LF and
//! CRLF, `data:` with and without a space, comments and a byte order mark as the standard has them; bytes that
//! are no UTF-8 become U+FFFD instead of an end; bounded memory. What an event means is the providers' business.

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use sse_stream::SseByteStream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// The most bytes that may pass without an event coming out of them (16 MiB).
pub(super) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The most bytes of one answer (128 MiB): far above the longest answer of any model.
pub(super) const MAX_TOTAL_BYTES: usize = 128 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// The `event:` field; empty where there was none.
    pub name: String,
    /// The `data:` lines, joined with LF.
    pub data: String,
}

/// A limit was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is larger than {0} bytes allow")]
pub(super) struct TooLarge(pub usize);

/// Takes bytes as they come, gives the events that are whole.
pub(super) struct Decoder {
    events: SseByteStream<Queue>,
    queue: Queue,
    /// The beginning of a character whose rest has not come yet; at most 3 bytes.
    cut_character: Vec<u8>,
    since_event: usize,
    total: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        let queue = Queue::default();
        Self {
            events: SseByteStream::new(queue.clone()),
            queue,
            cut_character: Vec::new(),
            since_event: 0,
            total: 0,
        }
    }
}

impl Decoder {
    /// Takes the next bytes. An answer without events means that none is whole yet, or that a comment came.
    pub(super) fn push(&mut self, chunk: Bytes) -> Result<Vec<SseEvent>, TooLarge> {
        self.total = self.total.saturating_add(chunk.len());
        self.since_event = self.since_event.saturating_add(chunk.len());
        if self.total > MAX_TOTAL_BYTES {
            return Err(TooLarge(MAX_TOTAL_BYTES));
        }
        if self.since_event > MAX_EVENT_BYTES {
            return Err(TooLarge(MAX_EVENT_BYTES));
        }
        let clean = self.repair_utf8(chunk);
        let events = self.drain(clean);
        if !events.is_empty() {
            self.since_event = 0;
        }
        Ok(events)
    }

    /// The end of the bytes. An event that only lacks its blank line is given; the standard would drop it, but
    /// some servers close without one.
    pub(super) fn finish(&mut self) -> Vec<SseEvent> {
        let ending = if self.cut_character.is_empty() { "\n\n" } else { "\u{fffd}\n\n" };
        self.cut_character.clear();
        self.drain(Bytes::from_static(ending.as_bytes()))
    }

    fn drain(&mut self, bytes: Bytes) -> Vec<SseEvent> {
        self.queue.push(bytes);
        let mut found = Vec::new();
        // The queue is never waited for: what it holds is decoded at once. Errors cannot come, as the queue
        // gives none and all bytes are UTF-8.
        while let Some(Some(Ok(event))) = self.events.next().now_or_never() {
            if let Some(data) = event.data {
                found.push(SseEvent { name: event.event.unwrap_or_default(), data });
            }
        }
        found
    }

    fn repair_utf8(&mut self, chunk: Bytes) -> Bytes {
        if self.cut_character.is_empty() && std::str::from_utf8(&chunk).is_ok() {
            return chunk;
        }
        let joined = [std::mem::take(&mut self.cut_character).as_slice(), &chunk].concat();
        let mut clean = String::with_capacity(joined.len());
        let mut rest = joined.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    clean.push_str(text);
                    return Bytes::from(clean);
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    clean.push_str(&String::from_utf8_lossy(good));
                    let Some(length) = error.error_len() else {
                        self.cut_character = bad.to_vec();
                        return Bytes::from(clean);
                    };
                    clean.push('\u{fffd}');
                    rest = &bad[length..];
                }
            }
        }
    }
}

/// Bytes between [`Decoder::push`] and the parser; empty means "not yet", never "the end".
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<Bytes>>>);

impl Queue {
    fn push(&self, bytes: Bytes) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(bytes);
    }
}

impl Stream for Queue {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(bytes))),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(decoder.push(Bytes::copy_from_slice(chunk)).unwrap());
        }
        events.extend(decoder.finish());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    fn data(text: &str) -> (String, String) {
        (String::new(), text.to_owned())
    }

    #[rstest]
    #[case::lf("data: a\n\ndata: b\n\n")]
    #[case::crlf("data: a\r\n\r\ndata: b\r\n\r\n")]
    #[case::cr("data: a\r\rdata: b\r\r")]
    #[case::no_space("data:a\n\ndata:b\n\n")]
    #[case::comments(": hi\n\ndata: a\n: between\n\n:\n\ndata: b\n\n")]
    #[case::byte_order_mark("\u{feff}data: a\n\ndata: b\n\n")]
    #[case::other_fields("id: 1\nretry: 5\ndata: a\n\nfoo: bar\ndata: b\n\n")]
    #[case::no_last_blank_line("data: a\n\ndata: b")]
    fn the_events_are_the_same_in_every_spelling(#[case] text: &str) {
        assert_eq!(decode(&[text.as_bytes()]), [data("a"), data("b")]);
    }

    #[test]
    fn an_event_that_ends_in_a_bare_cr_does_not_wait_for_the_next_byte() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(Bytes::from_static(b"data: a\r\r")).unwrap().len(), 1);
    }

    #[test]
    fn lines_of_one_event_are_joined_and_named() {
        assert_eq!(
            decode(&[b"event: error\ndata: {\ndata: }\n\n"]),
            [("error".to_owned(), "{\n}".to_owned())]
        );
    }

    #[test]
    fn characters_that_are_cut_between_chunks_come_out_whole() {
        let bytes = "data: häß🦀\n\n".as_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), [data("häß🦀")]);
        }
    }

    #[test]
    fn bytes_that_are_no_text_become_replacement_characters() {
        assert_eq!(
            decode(&[b"data: a\xffb\n\n", b"data: c\xe2\x82"]),
            [data("a\u{fffd}b"), data("c\u{fffd}")]
        );
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::default();
        let piece = Bytes::from(vec![b'x'; 1024 * 1024]);
        let outcome = (0..20).find_map(|_| decoder.push(piece.clone()).err());
        assert_eq!(outcome, Some(TooLarge(MAX_EVENT_BYTES)));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(text in "(data:|event:|:| |a|ä|\r|\n|\r\n|\u{feff}){0,40}", cut in any::<prop::sample::Index>()) {
            let bytes = text.as_bytes();
            let cut = cut.index(bytes.len() + 1);
            prop_assert_eq!(decode(&[bytes]), decode(&[&bytes[..cut], &bytes[cut..]]));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(decode(&[bytes]), decode(&single));
        }

        #[test]
        fn junk_never_panics(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            decode(&chunks);
        }
    }
}
