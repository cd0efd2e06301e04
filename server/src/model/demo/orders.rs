//! The plain orders that the demo model understands, one a line. A path with spaces stands in double quotes; in
//! what is written or replaced, `\n` is a new line.

use serde_json::{Map, Value};

/// The orders, as the demo lists them.
pub(super) const HELP: &str = "\
- `read <path>`
- `list [path]`
- `find <text>`
- `run <command>`
- `write <path> <content>`
- `edit <path>: <old> -> <new>`
- `ask <agent>: <order>`
- `say <text>`
- `count <n>`";

/// The largest number that `count` counts to.
const MAX_COUNT: u64 = 100_000;

/// What one line asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Order {
    /// Answer with exactly this.
    Say(String),
    /// Ask for a tool.
    Tool {
        /// Its name.
        tool: &'static str,
        /// Its arguments.
        input: Map<String, Value>,
    },
    /// An order that lacks a part; how it reads.
    Malformed(&'static str),
}

impl Order {
    /// Reads one line; `None` when it is no order.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let line = line.trim_start();
        let (verb, rest) = line.split_once(' ').unwrap_or((line.trim_end(), ""));
        let one = |tool, key: &str, usage| match unquote(rest.trim()) {
            "" => Self::Malformed(usage),
            value => Self::tool(tool, &[(key, value)]),
        };
        Some(match verb {
            // Exactly the text: white space and all.
            "say" if !rest.trim().is_empty() => Self::Say(rest.to_owned()),
            "count" => match rest.trim().parse::<u64>() {
                Ok(n @ 1..=MAX_COUNT) => {
                    Self::Say((1..=n).map(|n| n.to_string()).collect::<Vec<_>>().join(" "))
                }
                _ => Self::Malformed("count <1 to 100000>"),
            },
            "read" => one("file_read", "path", "read <path>"),
            "find" => Self::find(rest.trim()),
            "run" if rest.trim().is_empty() => Self::Malformed("run <command>"),
            "run" => Self::tool("shell_exec", &[("command", rest.trim())]),
            "list" if rest.trim().is_empty() => Self::tool("file_list", &[]),
            "list" => one("file_list", "path", "list [path]"),
            "ask" => Self::ask(rest.trim()),
            "write" => Self::write(rest.trim()),
            "edit" => Self::edit(rest.trim()),
            _ => return None,
        })
    }

    /// Hands an order to a sub-agent. Without a colon it is a sentence.
    fn ask(text: &str) -> Self {
        match text.split_once(':').map(|(agent, order)| (agent.trim(), order.trim())) {
            Some((agent, order)) if !agent.is_empty() && !order.is_empty() => {
                Self::tool("start_session", &[("agent_id", agent), ("message", order)])
            }
            _ => Self::Malformed("ask <agent>: <order>"),
        }
    }

    /// The text is looked for as it stands, so what a pattern would read as more is escaped.
    fn find(text: &str) -> Self {
        if text.is_empty() {
            return Self::Malformed("find <text>");
        }
        let mut pattern = String::with_capacity(text.len());
        for c in text.chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        Self::tool("grep", &[("pattern", &pattern)])
    }

    fn write(rest: &str) -> Self {
        let split = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(path, content)| (path, content.trim_start())),
            None => rest.split_once(' '),
        };
        match split {
            Some((path, content)) if !path.is_empty() && !content.is_empty() => {
                Self::tool("file_write", &[("path", path), ("content", &unescape(content))])
            }
            _ => Self::Malformed("write <path> <content>"),
        }
    }

    fn edit(rest: &str) -> Self {
        let parts = rest.split_once(": ").and_then(|(path, change)| Some((path, change.split_once(" -> ")?)));
        match parts {
            Some((path, (old, new))) if !path.is_empty() && !old.is_empty() => Self::tool(
                "file_edit",
                &[("path", unquote(path)), ("old_string", &unescape(old)), ("new_string", &unescape(new))],
            ),
            _ => Self::Malformed("edit <path>: <old> -> <new>"),
        }
    }

    fn tool(tool: &'static str, input: &[(&str, &str)]) -> Self {
        let input = input.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        Self::Tool { tool, input }
    }
}

fn unquote(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

fn unescape(text: &str) -> String {
    text.replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case("read README.md", "file_read", json!({"path": "README.md"}))]
    #[case("  read \"my notes.txt\" ", "file_read", json!({"path": "my notes.txt"}))]
    #[case("ask executor: read a: b", "start_session", json!({"agent_id": "executor", "message": "read a: b"}))]
    #[case("list", "file_list", json!({}))]
    #[case("list src", "file_list", json!({"path": "src"}))]
    #[case("run ls -l | wc", "shell_exec", json!({"command": "ls -l | wc"}))]
    #[case("find TODO (a.b)", "grep", json!({"pattern": r"TODO \(a\.b\)"}))]
    #[case("write notes.txt one two", "file_write", json!({"path": "notes.txt", "content": "one two"}))]
    #[case(r"write n.txt a\nb", "file_write", json!({"path": "n.txt", "content": "a\nb"}))]
    #[case("write \"my notes\" x", "file_write", json!({"path": "my notes", "content": "x"}))]
    #[case(
        "edit a.rs: let x = 1; -> let x = 2;",
        "file_edit",
        json!({"path": "a.rs", "old_string": "let x = 1;", "new_string": "let x = 2;"})
    )]
    fn an_order_asks_for_its_tool(#[case] line: &str, #[case] tool: &str, #[case] input: Value) {
        match Order::parse(line) {
            Some(Order::Tool { tool: name, input: given }) => {
                assert_eq!((name, Value::from(given)), (tool, input));
            }
            other => panic!("{other:?}"),
        }
    }

    #[rstest]
    #[case("read")]
    #[case("find ")]
    #[case("run")]
    #[case("write notes.txt")]
    #[case("edit a.rs: b")]
    #[case("ask executor")]
    #[case("count many")]
    #[case("count 100001")]
    fn an_order_without_its_parts_is_explained(#[case] line: &str) {
        assert!(matches!(Order::parse(line), Some(Order::Malformed(_))), "{line}");
    }

    #[rstest]
    #[case("hello")]
    #[case("reading a book")]
    #[case("Read it")]
    #[case("")]
    fn other_lines_are_no_orders(#[case] line: &str) {
        assert_eq!(Order::parse(line), None);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "(read|write|edit|say|find|run|list|count)?[ \":>a-ä\\\\-]{0,30}") {
            Order::parse(&line);
        }
    }
}
