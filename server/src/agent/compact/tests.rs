use super::*;
use proptest::prelude::*;
use serde_json::Map;

const LIMITS: Limits = Limits {
    window: 1000,
    compress_at: 0.9,
    keep_messages: 5,
    max_summary_input: 15_000,
    max_message_slice: 800,
};

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn user(content: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { role: Role::User, content })
}

fn assistant(content: Vec<Block>) -> Arc<Message> {
    Arc::new(Message { role: Role::Assistant, content })
}

fn call(id: &str) -> Block {
    Block::ToolUse { id: id.into(), name: "grep".into(), input: Map::new() }
}

fn result(id: &str, content: &str) -> Block {
    Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error: false }
}

/// A conversation of tool calls alone, each with its result.
fn tool_heavy(rounds: usize) -> Vec<Arc<Message>> {
    let mut history = vec![user(vec![text("go")])];
    for n in 0..rounds {
        let id = format!("c{n}");
        history.push(assistant(vec![call(&id)]));
        history.push(user(vec![result(&id, &"x".repeat(200))]));
    }
    history
}

#[test]
fn the_cut_leaves_no_result_without_its_call() {
    for keep in 1..8 {
        let history = tool_heavy(6);
        let cut = cut(&history, keep);
        let mut after = vec![Arc::new(summary(cut, "so far"))];
        after.extend(tail(&history[cut..]));
        assert!(repair::is_acceptable(&repair::for_request(&after)));
        assert_eq!(repair::for_request(&after).len(), after.len(), "nothing of it needs repair");
    }
}

#[test]
fn a_short_conversation_has_nothing_to_compact() {
    assert_eq!(cut(&tool_heavy(2), 5), 0);
    assert_eq!(cut(&[], 5), 0);
    assert_eq!(cut(&tool_heavy(3), 4), 3, "before a call");
    assert_eq!(cut(&tool_heavy(3), 5), 3, "not between a call and its result");
}

#[test]
fn of_the_kept_results_only_the_newest_stay() {
    let history = tool_heavy(4);
    let kept = tail(&history[3..]);
    let contents: Vec<&str> = kept
        .iter()
        .flat_map(|message| &message.content)
        .filter_map(|block| match block {
            Block::ToolResult { content, .. } => Some(content.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(contents.len(), 3);
    assert!(contents[..2].iter().all(|content| *content == OLDER_RESULT) && contents[2].starts_with("xxx"));
}

#[test]
fn a_request_for_a_summary_ends_in_one_and_suits_the_strictest_provider() {
    for history in [tool_heavy(2), vec![user(vec![text("hi")]), assistant(vec![call("c")])]] {
        let request = request(&history);
        assert!(repair::is_acceptable(&request));
        let Some(Block::Text { text }) = request.last().and_then(|last| last.content.last()) else {
            panic!("{request:?}")
        };
        assert!(text.starts_with(SUMMARY_REQUEST) && text.contains("call no tools"));
    }
}

#[test]
fn a_local_summary_is_bounded_and_has_the_newest_messages_and_the_earlier_summary() {
    let mut older = vec![Arc::new(summary(7, &"s".repeat(20_000)))];
    for n in 0..100 {
        older.push(user(vec![text(&format!("m{n} {}", "y".repeat(2000)))]));
    }
    let local = local_summary(&older, &LIMITS);
    assert!(local.chars().count() <= LIMITS.max_summary_input + 100, "{}", local.len());
    assert!(local.starts_with(SUMMARY_MARK) && local.contains("user: m99 ") && !local.contains("m1 "));
}

#[test]
fn text_counts_by_its_bytes_and_each_image_alike() {
    let image = Block::Image { mime_type: "image/png".into(), data: "A".repeat(1_000_000) };
    assert_eq!(estimate(&user(vec![text(&"x".repeat(35)), image])), 10 + 1500);
    assert!(overhead("be brief", &[]) > 0);
}

proptest! {
    #[test]
    fn images_go_oldest_first_and_only_as_many_as_asked(count in 0usize..6, remove in 0usize..8) {
        let image = Block::Image { mime_type: "image/png".into(), data: "AAAA".into() };
        let mut message = Message { role: Role::User, content: vec![image; count] };
        let mut left = remove;
        remove_images(&mut message, |_| {
            let more = left > 0;
            left = left.saturating_sub(1);
            more
        });
        prop_assert_eq!(images(&message).0, count.saturating_sub(remove));
        let first_kept = message.content.iter().position(|block| matches!(block, Block::Image { .. }));
        prop_assert!(first_kept.is_none_or(|first| first == remove));
    }
}
