//! Keeps the head and the tail of a command's output within a limit, whatever the command writes.

use std::collections::VecDeque;

/// The first and the last bytes of a stream.
#[derive(Debug)]
pub struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    /// Bytes between head and tail that are gone.
    left_out: u64,
}

impl HeadAndTail {
    /// Keeps `limit` bytes, half of them from the end.
    pub fn new(limit: usize) -> Self {
        let tail_limit = limit / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_limit: limit - tail_limit,
            tail_limit,
            left_out: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = (self.head_limit - self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        let kept = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let drop = (self.tail.len() + kept.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..drop);
        self.tail.extend(kept);
        self.left_out += (drop + rest.len() - kept.len()) as u64;
    }

    /// The text; bytes that are not UTF-8 become replacement characters. Where something is missing, a line says
    /// how much.
    pub fn into_text(mut self) -> String {
        let tail = self.tail.make_contiguous();
        if self.left_out == 0 {
            self.head.extend_from_slice(tail);
            return String::from_utf8_lossy(&self.head).into_owned();
        }
        let head = &self.head[..self.head.len() - open_end(&self.head)];
        let begin = tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        let left_out = self.left_out + (self.head.len() - head.len() + begin) as u64;
        format!(
            "{}\n[truncated: {left_out} bytes left out here]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(&tail[begin..])
        )
    }
}

/// How many bytes at the end begin a character that is cut off.
fn open_end(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        if !is_continuation(byte) {
            let length = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            return if length > back { back } else { 0 };
        }
    }
    0
}

fn is_continuation(byte: u8) -> bool {
    (0x80..0xc0).contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_left_out_is_counted_and_characters_stay_whole() {
        let mut kept = HeadAndTail::new(8);
        kept.push("aaaä".as_bytes());
        kept.push("öööö€zz".as_bytes());
        // Head `aaa` and half of ä, tail the last byte of € and `zz`, out of 18 bytes.
        assert_eq!(kept.into_text(), "aaa\n[truncated: 13 bytes left out here]\nzz");
    }

    proptest! {
        #[test]
        fn short_output_is_kept_exactly(parts in proptest::collection::vec("[a-zä€]{0,9}", 0..6)) {
            let whole = parts.concat();
            let mut kept = HeadAndTail::new(whole.len());
            for part in &parts {
                kept.push(part.as_bytes());
            }
            prop_assert_eq!(kept.into_text(), whole);
        }

        #[test]
        fn head_and_tail_are_those_of_the_stream(
            parts in proptest::collection::vec("[a-z]{0,30}", 1..9), limit in 0usize..40,
        ) {
            let whole = parts.concat();
            let mut kept = HeadAndTail::new(limit);
            for part in &parts {
                kept.push(part.as_bytes());
            }
            let tail = limit / 2;
            let expected = if whole.len() <= limit {
                whole
            } else {
                format!(
                    "{}\n[truncated: {} bytes left out here]\n{}",
                    &whole[..limit - tail], whole.len() - limit, &whole[whole.len() - tail..]
                )
            };
            prop_assert_eq!(kept.into_text(), expected);
        }
    }
}
