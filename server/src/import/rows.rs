//! Rows of old display logs. They stay as they are, older layouts included, with four exceptions: the id carries the
//! place in our log, the time is a number, the system prompt goes, and nothing is still being written.

use super::session_file::time;
use crate::session::ids::row_id;
use crate::store::imported::LogRow;
use serde_json::{Map, Value};

/// Numbers the rows of one log.
#[derive(Debug)]
pub struct Rows {
    seq: i64,
    at: i64,
    /// Messages of the user to the session itself.
    pub exchanges: i64,
    /// The display name of the agent, where a row tells it.
    pub agent_name: Option<String>,
    /// The time of the first row.
    pub first_at: Option<i64>,
}

impl Rows {
    /// For a log whose session was made at `start`.
    pub fn new(start: i64) -> Self {
        Self { seq: 0, at: start, exchanges: 0, agent_name: None, first_at: None }
    }

    /// The time of the last row, or of the session's start.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// The row as ours; none for what is no JSON object.
    pub fn next(&mut self, text: &str, archived: bool) -> Option<LogRow> {
        let mut row: Map<String, Value> = serde_json::from_str(text).ok()?;
        let stamp = row.get("timestamp").and_then(time).filter(|at| *at >= 0).unwrap_or(self.at);
        self.seq += 1;
        // Places and times rise together: whoever asks for rows since a time relies on it.
        self.at = self.at.max(stamp);
        self.first_at.get_or_insert(stamp);
        row.insert("id".into(), row_id(stamp, self.seq).into());
        row.insert("timestamp".into(), stamp.into());
        row.shift_remove("systemPrompt");
        row.shift_remove("streaming");
        let task = row.get("taskId").is_some_and(|id| !id.is_null());
        if !task && row.get("role").and_then(Value::as_str) == Some("user") {
            self.exchanges += 1;
        }
        if self.agent_name.is_none() && !task {
            self.agent_name = row.get("agentName").and_then(Value::as_str).map(str::to_owned);
        }
        Some(LogRow { seq: self.seq, at: self.at, task, archived, row: Value::Object(row).to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::ids::row_seq;
    use serde_json::json;

    fn taken(rows: &mut Rows, row: &Value) -> Value {
        serde_json::from_str(&rows.next(&row.to_string(), false).unwrap().row).unwrap()
    }

    #[test]
    fn a_row_keeps_all_it_has_but_gets_the_id_of_its_place() {
        let mut rows = Rows::new(5);
        let old = json!({"id": "m_old_z", "role": "assistant", "content": "x", "timestamp": 17,
            "toolCalls": [{"name": "grep", "input": "a"}], "deleted": true, "somethingNew": {"a": 1}});
        let new = taken(&mut rows, &old);
        assert_eq!(row_seq(new["id"].as_str().unwrap()), Some(1));
        let mut expected = old;
        expected["id"] = new["id"].clone();
        assert_eq!(new, expected);
    }

    #[test]
    fn the_system_prompt_and_what_was_being_written_do_not_come_along() {
        let mut rows = Rows::new(5);
        let new = taken(
            &mut rows,
            &json!({"type": "context", "role": "system", "systemPrompt": "secret", "streaming": true}),
        );
        assert_eq!(new["systemPrompt"], Value::Null);
        assert_eq!(new["streaming"], Value::Null);
        assert_eq!(new["timestamp"], 5, "a row without a time has that of the row before");
    }

    #[test]
    fn times_never_fall_and_only_the_users_own_messages_count() {
        let mut rows = Rows::new(0);
        let add = |rows: &mut Rows, row: Value| rows.next(&row.to_string(), true).unwrap();
        assert_eq!(add(&mut rows, json!({"role": "user", "timestamp": 20})).at, 20);
        let sub = add(&mut rows, json!({"role": "user", "taskId": "a>b", "timestamp": 10}));
        assert_eq!((sub.at, sub.task, sub.archived, sub.seq), (20, true, true, 2));
        let iso = add(&mut rows, json!({"role": "user", "timestamp": "1970-01-01T00:00:00.030Z"}));
        assert_eq!(iso.at, 30);
        assert_eq!((rows.exchanges, rows.first_at), (2, Some(20)));
        assert!(rows.next("null", false).is_none() && rows.next("[1]", false).is_none());
        assert_eq!(add(&mut rows, json!({})).seq, 4, "what is no row takes no place");
    }
}
