//! A run and those who watch it: a second message, a stop, a client that leaves, subscribers.

use super::history;
use super::table::{complete, error, row, session, stream, turn, user};
use super::world::World;
use serde_json::json;
use std::fmt::Write as _;

/// The words of `N:<n>`.
fn words(count: usize) -> String {
    (1..=count).fold(String::new(), |mut text, n| {
        write!(text, "w{n} ").unwrap();
        text
    })
}

#[tokio::test]
async fn a_second_message_waits_and_is_answered_in_the_same_stream() {
    let w = &mut World::new().await;
    let (id, order) = ("web_run_1", "N:20 D:50");
    let say = |text: &str| json!({ "message": text, "sessionId": id });
    let both = format!("{}ok", words(20));
    let first = row("run_chat_streaming")
        .chat(&say(order))
        .streams([
            session(id),
            user(order),
            stream("<begins:w1 >"),
            user("second"),
            stream("<ends:ok>"),
            complete(),
        ])
        .differs("section 2, frames (text as it arrives)")
        .open(w)
        .await
        .until("stream")
        .await;
    let so_far = json!({ "id": "<id>", "type": "assistant", "role": "assistant", "content": "<begins:w1 >",
        "timestamp": "<ms>", "agentName": "<text>", "streaming": true,
        "contentBlocks": [{ "type": "text", "text": "<begins:w1 >", "turnId": "<call:t1>" }] });
    row("history_running")
        .get("/api/web/history?sessionId=web_run_1")
        .token("full")
        .answers(200, history::running(id, [history::context(), history::user(order), so_far]))
        .differs("section 2, history (the row in flight)")
        .check(w)
        .await;
    let watcher = row("subscribe_running")
        .get("/api/web/subscribe?sessionId=web_run_1")
        .token("full")
        .streams([session(id), stream("<begins:w>"), user("second"), stream("<ends:ok>"), complete()])
        .differs("section 2, frames (text as it arrives)")
        .open(w)
        .await
        .until("stream")
        .await;
    row("run_chat_queued")
        .chat(&say("second"))
        .streams([session(id), json!({ "type": "queued" })])
        .check(w)
        .await;
    let said = first.end(w).await;
    watcher.end(w).await;
    assert_eq!(halo_tests::web::text_of(&said), both);
    // The message has split the row in two.
    let (before, after) = (
        history::assistant("<begins:w1 >", [history::text("<begins:w1 >", "t1")]),
        history::assistant("<ends:w20 >", [history::text("<ends:w20 >", "t1")]),
    );
    row("history_after_queue")
        .get("/api/web/history?sessionId=web_run_1")
        .token("full")
        .answers(
            200,
            history::idle(
                id,
                [
                    history::context(),
                    history::user(order),
                    before,
                    history::user("second"),
                    history::usage("t1"),
                    after,
                    history::usage("t2"),
                    history::assistant("ok", [history::text("ok", "t2")]),
                ],
            ),
        )
        .differs("section 2, history (the row in flight)")
        .check(w)
        .await;
}

#[tokio::test]
async fn a_stop_ends_the_run_for_everyone_who_watches() {
    let w = &mut World::new().await;
    let (id, order) = ("web_run_2", "N:500 D:100");
    let say = |text: &str| json!({ "message": text, "sessionId": id });
    let talking = row("stop_chat_stream")
        .chat(&say(order))
        .streams([session(id), user(order), stream("<begins:w1 >"), complete()])
        .differs("section 2, frames (text as it arrives)")
        .open(w)
        .await
        .until("stream")
        .await;
    let watcher = row("stop_subscriber")
        .get("/api/web/subscribe?sessionId=web_run_2")
        .token("full")
        .streams([session(id), stream("<begins:w>"), complete()])
        .differs("section 2, frames (text as it arrives)")
        .open(w)
        .await
        .until("stream")
        .await;
    row("stop_running")
        .ask(reqwest::Method::POST, "/api/web/stop?sessionId=web_run_2")
        .token("full")
        .answers(200, json!({ "stopped": true }))
        .check(w)
        .await;
    talking.end(w).await;
    watcher.end(w).await;
    let cut = history::assistant("<begins:w1 >", [history::text("<begins:w1 >", "t1")]);
    row("history_after_stop")
        .get("/api/web/history?sessionId=web_run_2")
        .token("full")
        .answers(200, history::idle(id, [history::context(), history::user(order), cut]))
        .differs("section 2, history (the row in flight)")
        .check(w)
        .await;
    row("chat_after_stop").chat(&say("again")).streams(turn(id, "again", "ok")).check(w).await;
}

#[tokio::test]
async fn where_nothing_runs_a_stop_and_a_subscriber_are_told_so() {
    let w = &mut World::new().await;
    let stop = |name, path| row(name).ask(reqwest::Method::POST, path);
    stop("stop_no_token", "/api/web/stop").refused(401, "token required").check(w).await;
    row("stop_get")
        .get("/api/web/stop")
        .token("full")
        .refused(405, "method not allowed")
        .shows("allow", "POST")
        .differs("section 2, endpoints (methods)")
        .check(w)
        .await;
    let nothing = json!({ "stopped": false });
    stop("stop_no_session", "/api/web/stop").token("full").answers(200, nothing.clone()).check(w).await;
    row("subscribe_no_session")
        .get("/api/web/subscribe")
        .token("full")
        .streams([error("No active session")])
        .check(w)
        .await;
    let idle = |id: &str| [session(id), complete()];
    row("subscribe_unknown_session")
        .get("/api/web/subscribe?sessionId=web_never")
        .token("full")
        .streams(idle("web_never"))
        .differs("section 2, subscribe")
        .check(w)
        .await;
    stop("stop_unknown", "/api/web/stop?sessionId=web_never")
        .token("full")
        .answers(200, nothing.clone())
        .check(w)
        .await;
    let chat = w.client("full").await;
    chat.turn("web_idle", "hi").await;
    stop("stop_idle", "/api/web/stop?sessionId=web_idle").token("full").answers(200, nothing).check(w).await;
    let path = "/api/web/subscribe?sessionId=web_idle";
    row("subscribe_idle")
        .get(path)
        .token("full")
        .streams(idle("web_idle"))
        .differs("section 2, subscribe")
        .check(w)
        .await;
    row("subscribe_idle_20s")
        .get(path)
        .token("full")
        .streams(idle("web_idle"))
        .differs("section 2, subscribe")
        .check(w)
        .await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_stream_alone() {
    let w = &mut World::new().await;
    let (id, order) = ("web_run_3", "HOLD");
    let path = "/api/web/history?sessionId=web_run_3";
    row("disconnect_chat")
        .chat(&json!({ "message": order, "sessionId": id }))
        .streams([session(id), user(order), stream("held ")])
        .differs("section 2, frames (text as it arrives)")
        .open(w)
        .await
        .until("stream")
        .await
        .leave(w);
    let so_far = json!({ "id": "<id>", "type": "assistant", "role": "assistant", "content": "held ",
        "timestamp": "<ms>", "agentName": "<text>", "streaming": true,
        "contentBlocks": [{ "type": "text", "text": "held ", "turnId": "<call:t1>" }] });
    row("history_after_disconnect_running")
        .get(path)
        .token("full")
        .answers(200, history::running(id, [history::context(), history::user(order), so_far]))
        .differs("section 2, history (the row in flight)")
        .check(w)
        .await;
    let watcher = w.client("full").await.subscribe(id, None).await;
    w.model.release();
    watcher.rest().await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn(order, "held free", "t1"));
    row("history_after_disconnect_done")
        .get(path)
        .token("full")
        .answers(200, history::idle(id, rows.clone()))
        .check(w)
        .await;
    row("cors_get_history")
        .get(path)
        .token("full")
        .header("origin", "http://page.example:3000")
        .shows("access-control-allow-origin", "http://page.example:3000")
        .hides("access-control-allow-credentials")
        .answers(200, history::idle(id, rows))
        .check(w)
        .await;
}
