//! Loop detection: a turn that makes the same tool call again and again and gets the same answer is told so, once a
//! call (agents contract, section 3). It warns and stops nothing: waiting for something may look alike, and people
//! have Stop.

use crate::tool::Output;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// How often a call gives the same answer before the model is told.
const SAME: u32 = 3;
/// Different calls of one turn that are remembered; past that a long turn goes on unwatched.
const REMEMBERED: usize = 4096;

/// The tool calls of one turn.
#[derive(Debug, Default)]
pub(super) struct Loops {
    seen: Mutex<HashMap<u64, Seen>>,
}

#[derive(Debug)]
struct Seen {
    answer: u64,
    times: u32,
    told: bool,
}

impl Loops {
    /// Notes a call and its answer. Gives what the model is told beside the answer when the call leads nowhere.
    pub fn note(&self, name: &str, input: &Map<String, Value>, output: &Output) -> Option<String> {
        let call = hash(&(name, Value::Object(input.clone()).to_string()));
        let answer = hash(&(&output.text, output.is_error));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED && !seen.contains_key(&call) {
            return None;
        }
        let call = seen.entry(call).or_insert(Seen { answer, times: 0, told: false });
        if call.answer != answer {
            (call.answer, call.times) = (answer, 0);
        }
        call.times += 1;
        if call.times < SAME || call.told {
            return None;
        }
        call.told = true;
        Some(format!(
            "[Loop warning: {name} was called with these arguments {SAME} times in this turn and answered the same each \
             time. Calling it again will not help: try another way, or end the turn and say what is in the way.]"
        ))
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn note(loops: &Loops, path: &str, answer: &str) -> bool {
        let Value::Object(input) = json!({ "path": path }) else { unreachable!() };
        loops.note("file_read", &input, &Output::ok(answer)).is_some()
    }

    #[test]
    fn the_third_equal_answer_to_an_equal_call_is_told_once() {
        let loops = Loops::default();
        let told: Vec<bool> = (0..6).map(|_| note(&loops, "a", "same")).collect();
        assert_eq!(told, [false, false, true, false, false, false]);
    }

    #[test]
    fn calls_that_take_turns_are_counted_each() {
        let loops = Loops::default();
        let told: Vec<bool> =
            (0..6).map(|n| note(&loops, if n % 2 == 0 { "a" } else { "b" }, "same")).collect();
        assert_eq!(told, [false, false, false, false, true, true]);
    }

    #[test]
    fn waiting_for_an_answer_that_changes_is_no_loop() {
        let loops = Loops::default();
        assert!((0..20).all(|n| !note(&loops, "a", &format!("{} %", n / 2))));
    }

    #[test]
    fn a_turn_of_very_many_different_calls_is_remembered_in_part() {
        let loops = Loops::default();
        for n in 0..2 * REMEMBERED {
            note(&loops, &n.to_string(), "x");
        }
        assert_eq!(loops.seen.lock().unwrap().len(), REMEMBERED);
    }
}
