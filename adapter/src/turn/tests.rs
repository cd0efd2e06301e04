//! A turn against a scripted server, with the clock of the tests: every real wait, none of the waiting.

use agent_client_protocol::v1::schema::{SessionUpdate, StopReason};
use serde_json::{Value, json};

use super::script::{Log, Script, Step, f, kind, n, session, text};

const END: StopReason = StopReason::EndTurn;
const CANCELLED: StopReason = StopReason::Cancelled;

/// The log of the prompt, its reply, and a report that came in later.
fn log(reply: &str) -> Log {
    Log::Rows(json!([
        {"type": "user", "role": "user", "content": "hi"},
        {"type": "assistant", "role": "assistant", "content": reply},
        {"type": "user", "role": "user", "content": "(from: session x)\nreport"},
    ]))
}

fn hello(piece: &str) -> Vec<Step> {
    vec![f(session("s1")), f(text(piece))]
}

fn done(piece: &str) -> Vec<Step> {
    vec![f(session("s1")), f(text(piece)), f(kind("complete"))]
}

fn idle() -> Vec<Step> {
    vec![f(session("s1")), f(kind("complete"))]
}

#[tokio::test(start_paused = true)]
async fn a_turn_streams_to_its_end_and_asks_for_nothing_else() {
    let script = Script::new(done("Hello"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello");
    assert_eq!(script.calls(), ["0 chat s1 hi"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_is_told_and_ends_the_turn() {
    let script =
        Script::new(vec![f(session("s1")), f(json!({"type": "error", "error": "no model"})), Step::Hang]);
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "[error] no model");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_server_never_took_is_told_without_a_second_try() {
    let script = Script::new(vec![Step::Break]);
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "[adapter error] cannot reach halo at http://h:1: broken");
    assert_eq!(script.calls().len(), 1);
    let script = Script::new(vec![]);
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "[adapter error] the server closed the stream before its first frame");
}

#[tokio::test(start_paused = true)]
async fn with_numbered_frames_a_drop_needs_no_settling() {
    let script = Script::new(vec![n("r.1", session("s1")), n("r.2", text("Hel")), Step::Break])
        .sub(vec![f(session("s1")), n("r.3", text("lo ")), n("r.4", text("wor"))])
        .sub(vec![f(session("s1")), n("r.5", text("ld")), n("r.6", kind("complete"))]);
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello world");
    assert_eq!(script.calls(), ["0 chat s1 hi", "1 sub s1 r.2", "2 sub s1 r.4"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_no_longer_held_is_settled_against_the_log() {
    let script = Script::new(vec![n("r.1", text("Hel"))])
        .sub(vec![
            f(session("s1")),
            f(kind("resync")),
            n("q.1", text("Hello ")),
            n("q.2", json!({"type": "tool_call", "toolName": "grep"})),
            n("q.3", kind("complete")),
        ])
        .log(log("Hello world"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello world");
    assert_eq!(script.updates().len(), 2, "frames after the resync are not forwarded");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_no_held_frames_led_up_to_is_settled() {
    let script = Script::new(vec![n("r.1", text("Hello "))]).sub(idle()).log(log("Hello world"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello world");
}

#[rstest::rstest]
#[case::rest("Hello ", idle(), "Hello world", "Hello world")]
#[case::media("Here it is\n", done("More"), "Here it is\nMEDIA:/x.png\nMore text", "Here it is\nMore text")]
#[case::hole("Hel", done("ld"), "Hello world", "Helld[reconnected \u{2014} full reply]\nHello world")]
#[case::equal("Hello ", done("world"), "Hello world", "Hello world")]
#[tokio::test(start_paused = true)]
async fn without_numbers_a_drop_is_settled(
    #[case] before: &str,
    #[case] joined: Vec<Step>,
    #[case] logged: &str,
    #[case] shown: &str,
) {
    let script = Script::new(hello(before)).sub(joined).log(log(logged));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), shown);
    assert_eq!(script.calls()[1..], ["1 sub s1 -", "1 history s1 999700000"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_wait_longer_each_time_and_a_frame_starts_them_over() {
    let script = Script::new(hello("Hel"))
        .sub(vec![Step::Break])
        .sub(vec![])
        .sub(vec![f(text("lo "))])
        .sub(done("world"))
        .log(log("Hello world"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello world");
    let subs: Vec<_> = script.calls().into_iter().filter(|call| call.contains("sub")).collect();
    assert_eq!(subs, ["1 sub s1 -", "3 sub s1 -", "7 sub s1 -", "8 sub s1 -"]);
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_are_told() {
    let script = Script::new(hello("Hel"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hel[adapter error] connection lost");
    assert_eq!((script.count("sub"), script.seconds()), (5, 31));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_leaves_no_silent_hole() {
    let script = Script::new(hello("Hel")).sub(idle()).log(Log::Fail);
    assert_eq!(script.run().await, END);
    assert!(
        script.said().starts_with("Hel[adapter error] the reply may be incomplete: "),
        "{}",
        script.said()
    );
    assert_eq!(script.count("history"), 3);
}

#[tokio::test(start_paused = true)]
async fn lost_results_are_taken_from_the_log() {
    let call = json!({"type": "tool_call", "toolName": "grep", "toolUseId": "t1", "toolInput": {}});
    let script = Script::new(vec![f(session("s1")), f(call)]).sub(idle()).log(Log::Rows(json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "done", "contentBlocks": [
            {"type": "tool_call", "toolCall": {"name": "grep", "input": "{}", "output": "hit", "toolUseId": "t1"}},
            {"type": "text", "text": "done"}]},
    ])));
    assert_eq!(script.run().await, END);
    let updates = script.updates();
    assert!(matches!(&updates[1], SessionUpdate::ToolCallUpdate(update) if &*update.tool_call_id.0 == "t1"));
    assert_eq!(script.said(), "done");
}

fn queued(id: Option<&'static str>) -> Vec<Step> {
    vec![f(session("s1")), Step::Frame(id, kind("queued"))]
}

fn user() -> Step {
    f(json!({"type": "user", "text": "hi"}))
}

#[rstest::rstest]
#[case::streamed(vec![f(session("s1")), f(text("earlier tail. ")), f(text("answer")), f(kind("complete"))],
    "answer", "earlier tail. answer")]
#[case::late(idle(), "late answer", "late answer")]
#[case::own_part(vec![f(text("tail. ")), user(), f(text("ans")), f(kind("complete"))], "answer", "tail. answer")]
#[case::only_the_other_turn(vec![f(text("tail. ")), user(), f(kind("complete"))], "answer", "tail. answer")]
#[tokio::test(start_paused = true)]
async fn a_busy_session_is_followed_and_settled(
    #[case] joined: Vec<Step>,
    #[case] logged: &str,
    #[case] shown: &str,
) {
    let script = Script::new(queued(None)).sub(joined).log(log(logged));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), shown);
    assert_eq!(script.calls()[1..], ["0 sub s1 -", "0 history s1 999700000"]);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_whose_log_is_empty_adds_nothing() {
    let script = Script::new(queued(None)).sub(done("second")).log(Log::Rows(json!([])));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "second");
}

#[tokio::test(start_paused = true)]
async fn the_follow_up_of_a_queued_message_starts_at_its_place() {
    let script = Script::new(queued(Some("r.9")))
        .sub(vec![
            f(session("s1")),
            n("r.10", text("tail. ")),
            n("r.11", json!({"type": "user", "text": "hi"})),
            n("r.12", text("a")),
        ])
        .sub(vec![n("r.13", text("nswer")), n("r.14", kind("complete"))])
        .log(log("answer"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "tail. answer");
    assert_eq!(script.calls()[1..3], ["0 sub s1 r.9", "1 sub s1 r.12"]);
}

#[tokio::test(start_paused = true)]
async fn everything_goes_to_the_session_that_runs_the_turn() {
    let script = Script::new(vec![f(session("goal_abc")), f(kind("queued"))])
        .sub(vec![f(session("goal_abc")), Step::Wait(2), f(kind("complete"))])
        .log(log("x"))
        .cancel_at(1);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!(script.calls(), ["0 chat s1 hi", "0 sub goal_abc -", "1 stop goal_abc"]);
    let script = Script::new(vec![f(session("goal_abc")), f(kind("queued"))]).sub(idle()).log(log("x"));
    script.run().await;
    assert_eq!(script.calls()[2], "0 history s1 999700000", "the last session frame counts");
}

#[tokio::test(start_paused = true)]
async fn an_idle_join_that_never_answers_is_found_out_by_asking_the_log() {
    let script = Script::new(hello("Hello "))
        .sub(vec![f(session("s1")), Step::Hang])
        .log(Log::Running(true))
        .log(Log::Running(false))
        .log(log("Hello world"));
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "Hello world");
    assert_eq!(script.seconds(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_silent_link_is_dead_only_where_keepalives_were_seen() {
    let alive = vec![n("r.1", text("a")), Step::Wait(3600), n("r.2", text("b")), n("r.3", kind("complete"))];
    let script = Script::new(alive);
    assert_eq!(script.run().await, END);
    assert_eq!((script.said().as_str(), script.count("sub")), ("ab", 0));

    let dead = vec![n("r.1", text("a")), Step::Keepalive, Step::Wait(39), Step::Keepalive, Step::Hang];
    let script = Script::new(dead).sub(vec![n("r.2", text("b")), n("r.3", kind("complete"))]);
    assert_eq!(script.run().await, END);
    assert_eq!(script.calls()[1..], ["80 sub s1 r.1"]);
    assert_eq!(script.said(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_still_shows_what_ends_it() {
    let call = json!({"type": "tool_call", "toolName": "shell_exec", "toolUseId": "tu_1", "toolInput": {}});
    let result = json!({"type": "tool_result", "toolName": "shell_exec", "toolUseId": "tu_1",
        "result": "[interrupted by user]"});
    let script = Script::new(vec![f(session("s1")), f(call), Step::Wait(2), f(result), f(kind("complete"))])
        .cancel_at(1);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!(script.calls()[1..], ["1 stop s1"]);
    assert!(matches!(script.updates()[1], SessionUpdate::ToolCallUpdate(_)));
}

#[rstest::rstest]
#[case::hangs(vec![f(session("s1")), Step::Hang], 6)]
#[case::goes_on(vec![f(session("s1")), Step::Wait(4), f(text("a")), Step::Wait(4), f(text("b")), Step::Hang], 6)]
#[case::is_dropped(vec![f(session("s1")), Step::Wait(3), Step::Break], 3)]
#[case::never_connected(vec![Step::Hang], 6)]
#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_within_its_grace(#[case] chat: Vec<Step>, #[case] seconds: u64) {
    let script = Script::new(chat).cancel_at(1);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!(script.seconds(), seconds);
    assert_eq!((script.count("stop"), script.count("sub"), script.count("history")), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_the_run_began_is_repeated_once_it_has() {
    let script = Script::new(vec![Step::Wait(3), f(session("goal_x")), f(kind("complete"))]).cancel_at(1);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!(script.calls()[1..], ["1 stop s1", "3 stop goal_x"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_came_with_the_prompt_sends_nothing() {
    let script = Script::new(done("x"));
    script.cancel.cancel();
    assert_eq!(script.run().await, CANCELLED);
    assert!(script.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_between_two_attempts_ends_the_turn_at_once() {
    let script = Script::new(hello("Hel")).sub(vec![]).sub(vec![]).sub(vec![]).cancel_at(8);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!(script.seconds(), 8);
    assert_eq!((script.count("stop"), script.count("sub"), script.said().as_str()), (1, 3, "Hel"));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_log_is_read_ends_the_turn_at_once() {
    let script = Script::new(queued(None)).sub(idle()).log(Log::Hang).cancel_at(2);
    assert_eq!(script.run().await, CANCELLED);
    assert_eq!((script.seconds(), script.said().as_str()), (2, ""));
}

#[tokio::test(start_paused = true)]
async fn frames_that_mean_nothing_here_are_dropped() {
    let strange: Vec<Value> = vec![
        json!({"type": "switch", "sessionId": "other"}),
        json!({"type": "user", "text": "hi"}),
        json!({"type": "novelty", "text": "x"}),
        json!({"type": "file", "path": "/ws/a.png", "name": "a.png"}),
        json!({"type": "thinking", "text": "hm"}),
        json!({"type": "complete"}),
    ];
    let script = Script::new(strange.into_iter().map(f).collect());
    assert_eq!(script.run().await, END);
    assert_eq!(script.said(), "[file: a.png]");
    assert_eq!(script.updates().len(), 2);
}
