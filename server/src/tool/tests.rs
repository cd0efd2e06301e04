//! All tools on files of their own against what real folders hold: encodings and line ends ([`contents`]), odd paths
//! and names ([`names`]), what is no file, links and mode bits ([`kinds`]), and random edits ([`edits`]). What only
//! one tool promises is tested beside it.

mod contents;
mod edits;
mod kinds;
mod names;
mod writes;

use super::file_edit::FileEdit;
use super::file_list::FileList;
use super::file_read::FileRead;
use super::file_write::FileWrite;
use super::glob::Glob;
use super::grep::Grep;
use super::testing::Place;
use super::view_image::ViewImage;
use super::{Output, Tool};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a tool may take to say no.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Each tool with arguments that lead to this path.
fn calls(path: &str) -> [(&'static str, Box<dyn Tool>, Value); 7] {
    [
        ("file_read", Box::new(FileRead), json!({"path": path})),
        ("file_write", Box::new(FileWrite), json!({"path": path, "content": "new"})),
        ("file_edit", Box::new(FileEdit), json!({"path": path, "old_string": "old", "new_string": "new"})),
        ("view_image", Box::new(ViewImage), json!({"path": path})),
        ("file_list", Box::new(FileList), json!({"path": path})),
        ("grep", Box::new(Grep), json!({"pattern": "old", "path": path})),
        ("glob", Box::new(Glob), json!({"pattern": "**", "path": path})),
    ]
}

/// What the tool answers, soon.
async fn soon(place: &Place, tool: &dyn Tool, input: Value) -> Output {
    let shown = input.to_string();
    let answer = tokio::time::timeout(AT_ONCE, place.call(tool, input)).await;
    answer.unwrap_or_else(|_| panic!("{} does not answer to {shown}", tool.spec().name))
}

/// Every tool that takes this path fails on it, with these words.
async fn all_fail(place: &Place, path: &str, words: impl Fn(&str) -> &'static str) {
    for (name, tool, input) in calls(path) {
        let output = soon(place, tool.as_ref(), input).await;
        assert!(output.is_error, "{name}: {}", output.text);
        assert!(output.text.contains(words(name)), "{name}: {}", output.text);
    }
}
