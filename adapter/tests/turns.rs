//! Prompts through the real binary: what goes to the server, what comes back to the editor, in which order.
//! The long waits of a turn are tested with the clock of the tests beside the code.

mod support;

use serde_json::{Value, json};
use support::editor::{Editor, said};
use support::halo::{Answer, Halo, SESSION, stream};

fn end(text: &str) -> (String, String) {
    (text.to_owned(), "end_turn".to_owned())
}

#[tokio::test]
async fn a_prompt_is_sent_as_one_message_with_its_images() {
    let halo = Halo::start().await;
    halo.chat().session().text("Hel").text("lo").complete();
    let mut editor = Editor::with_session(&halo).await;
    let id = editor
        .prompt_blocks(json!([
            {"type": "text", "text": "Explain "}, {"type": "text", "text": "this:"},
            {"type": "resource", "resource": {"uri": "file:///a.py", "text": "print(1)"}},
            {"type": "resource_link", "name": "doc.pdf", "uri": "file:///doc.pdf"},
            {"type": "image", "data": "iVBO", "mimeType": "image/png"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]))
        .await;
    assert_eq!(editor.reply(id).await, end("Hello"));
    assert_eq!(
        halo.seen("POST chat")[0].body,
        json!({
            "message": "Explain this:\n\n[resource: file:///a.py]\n```\nprint(1)\n```\n\n[resource link: doc.pdf file:///doc.pdf]",
            "sessionId": SESSION,
            "images": [{"data": "iVBO", "mimeType": "image/png"}],
        })
    );
    let (_, stderr, _) = editor.end().await;
    assert_eq!(stderr.lines().filter(|line| line.contains("audio")).count(), 1, "{stderr}");
}

#[tokio::test]
async fn every_frame_becomes_its_update() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    let url = format!("https://x/{}", "y".repeat(100));
    for frame in [
        json!({"type": "session", "sessionId": SESSION}),
        json!({"type": "user", "text": "hi"}),
        json!({"type": "thinking", "text": "hm"}),
        json!({"type": "tool_call", "toolName": "grep", "toolUseId": "tu_a", "toolInput": {"pattern": "foo", "path": "src"}}),
        json!({"type": "tool_call", "toolName": "web_fetch", "toolUseId": "tu_b", "toolInput": {"url": url}}),
        json!({"type": "tool_call", "toolName": "odd", "toolUseId": "", "toolInput": {}}),
        json!({"type": "tool_result", "toolName": "grep", "toolUseId": "tu_a", "result": "hit"}),
        json!({"type": "tool_result", "toolName": "odd", "toolUseId": "", "result": "x"}),
        json!({"type": "tool_result", "toolName": "web_fetch", "toolUseId": "tu_b", "result": "page"}),
        json!({"type": "switch", "sessionId": "other"}),
        json!({"type": "file", "path": "/ws/p.png", "name": "p.png", "mimeType": "image/png"}),
        json!({"type": "file", "path": "/ws/q.png"}),
        json!({"type": "stream", "text": "done"}),
    ] {
        feed.frame(frame);
    }
    feed.complete();
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    let (updates, answer) = editor.until(id).await;
    assert_eq!(answer["result"], json!({"stopReason": "end_turn"}));
    let minted = updates[3]["toolCallId"].as_str().expect("an id").to_owned();
    assert!(!minted.is_empty());
    let text = |text: &str| json!({"type": "text", "text": text});
    let chunk = |words: &str| json!({"sessionUpdate": "agent_message_chunk", "content": text(words)});
    let done = |id: &str, words: &str| {
        json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed",
            "content": [{"type": "content", "content": text(words)}]})
    };
    assert_eq!(
        Value::from(updates),
        json!([
            {"sessionUpdate": "agent_thought_chunk", "content": text("hm")},
            {"sessionUpdate": "tool_call", "toolCallId": "tu_a", "title": "grep: foo", "kind": "search",
             "status": "in_progress", "rawInput": {"pattern": "foo", "path": "src"}},
            {"sessionUpdate": "tool_call", "toolCallId": "tu_b", "title": format!("web_fetch: {}", &url[..80]),
             "kind": "fetch", "status": "in_progress", "rawInput": {"url": url}},
            {"sessionUpdate": "tool_call", "toolCallId": minted, "title": "odd", "status": "in_progress", "rawInput": {}},
            done("tu_a", "hit"),
            done(&minted, "x"),
            done("tu_b", "page"),
            chunk("[file: p.png]"),
            chunk("[file: /ws/q.png]"),
            chunk("done"),
        ])
    );
}

#[tokio::test]
async fn a_stream_may_be_cut_anywhere_and_hold_what_is_no_frame() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    let bytes = ": keepalive\n\nevent: x\r\nretry: 3\r\ndata: {\"type\":\"stream\",\r\ndata: \"text\":\"\u{4f60}\"}\r\n\r\n\
                 data: broken{\n\ndata: {\"type\":\"stream\"}\n\ndata: {\"type\":\"stream\",\"text\":\"\u{e9}\"}\r\r";
    for byte in bytes.as_bytes() {
        feed.raw([*byte]);
        tokio::task::yield_now().await;
    }
    feed.complete();
    assert_eq!(editor.reply(id).await, end("\u{4f60}\u{e9}"));
    let (_, stderr, _) = editor.end().await;
    assert_eq!(stderr.matches("skipped a frame").count(), 2, "{stderr}");
}

#[tokio::test]
async fn a_frame_of_64_mib_is_refused_with_an_error() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    feed.session().text("a").raw(b"data: ".as_slice());
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    for _ in 0..64 {
        feed.raw(vec![b'x'; 1 << 20]);
    }
    assert_eq!(editor.reply(id).await, end("a[adapter error] the server sent a frame of 64 MiB or more"));
}

#[tokio::test]
async fn a_dropped_stream_goes_on_at_its_place_without_hole_or_repeat() {
    let halo = Halo::start().await;
    let first = halo.chat();
    first.numbered("r.1", json!({"type": "session", "sessionId": SESSION}));
    first.numbered("r.2", json!({"type": "stream", "text": "Hello "})).raw("id: r.3\ndata: {\"type\":\"str");
    let second = halo.subscribe();
    second.session().numbered("r.3", json!({"type": "stream", "text": "wor"}));
    second.numbered("r.4", json!({"type": "stream", "text": "ld"}));
    second.numbered("r.5", json!({"type": "complete"}));
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    assert_eq!(said(&[editor.line().await["params"]["update"].clone()]), "Hello ");
    first.cut();
    assert_eq!(editor.reply(id).await, end("world"));
    let joined = &halo.seen("GET subscribe")[0];
    assert_eq!(joined.headers["last-event-id"], "r.2");
    assert_eq!(joined.query["sessionId"], SESSION);
    assert!(halo.seen("GET history").is_empty());
}

#[tokio::test]
async fn a_dropped_stream_of_an_older_server_is_settled_by_its_log() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    feed.session().text("Hello ");
    drop(feed);
    halo.subscribe().session().complete();
    halo.json(
        "GET history",
        json!({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello world"}]}),
    );
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    assert_eq!(editor.reply(id).await, end("Hello world"));
    assert!(!halo.seen("GET subscribe")[0].headers.contains_key("last-event-id"));
    let since: i64 = halo.seen("GET history")[0].query["since"].parse().expect("a number");
    let date = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as i64;
    assert!((date - 600_000..date).contains(&since), "{since} of {date}");
}

#[tokio::test]
async fn a_message_to_a_busy_session_is_followed_to_its_end() {
    let halo = Halo::start().await;
    halo.chat().frame(json!({"type": "session", "sessionId": "goal_abc"})).frame(json!({"type": "queued"}));
    halo.subscribe()
        .text("earlier tail. ")
        .frame(json!({"type": "user", "text": "hi"}))
        .text("answer")
        .complete();
    halo.json(
        "GET history",
        json!({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "answer"}]}),
    );
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    assert_eq!(editor.reply(id).await, end("earlier tail. answer"));
    for call in ["GET subscribe", "GET history"] {
        assert_eq!(halo.seen(call)[0].query["sessionId"], "goal_abc");
    }
}

#[tokio::test]
async fn a_failure_before_the_first_frame_is_told_as_text() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    for (answer, expected) in [
        (Answer::Json(401, json!({"error": "invalid token"})), "token refused by http://127.0.0.1:"),
        (Answer::Locked(9), "try again in 9 s"),
        (Answer::Json(413, json!({"error": "body over 24 MiB"})), "HTTP 413: body over 24 MiB"),
    ] {
        halo.on("POST chat", answer);
        let id = editor.prompt("hi").await;
        let (text, reason) = editor.reply(id).await;
        assert!(text.starts_with("[adapter error] ") && text.contains(expected), "{text}");
        assert_eq!(reason, "end_turn");
    }
    let (feed, answer) = stream();
    feed.frame(json!({"type": "error", "error": "no model"}));
    halo.on("POST chat", answer);
    let id = editor.prompt("hi").await;
    assert_eq!(editor.reply(id).await, end("[error] no model"));
    assert!(halo.seen("GET subscribe").is_empty());
}

#[tokio::test]
async fn a_cancel_stops_the_run_and_waits_for_its_last_words() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    feed.frame(json!({"type": "session", "sessionId": "goal_abc"}));
    feed.frame(json!({"type": "tool_call", "toolName": "shell_exec", "toolUseId": "tu_1", "toolInput": {}}));
    halo.on("POST stop", Answer::Hang);
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    editor.line().await;
    editor.cancel().await;
    assert_eq!(halo.wait_for("POST stop", 1).await.body["sessionId"], "goal_abc");

    let second = editor
        .send("session/prompt", json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "x"}]}))
        .await;
    let refused = editor.line().await;
    assert_eq!((refused["id"].as_i64(), &refused["error"]["code"]), (Some(second), &json!(-32600)));

    feed.frame(json!({"type": "tool_result", "toolName": "shell_exec", "toolUseId": "tu_1", "result": "[interrupted by user]"}));
    feed.complete();
    let (updates, answer) = editor.until(id).await;
    assert_eq!(updates[0]["sessionUpdate"], "tool_call_update");
    assert_eq!(answer["result"], json!({"stopReason": "cancelled"}));
    assert_eq!(halo.seen("POST stop").len(), 1);

    halo.chat().text("again").complete();
    let id = editor.prompt("x").await;
    assert_eq!(editor.reply(id).await, end("again"));
}

#[tokio::test]
async fn a_cancel_in_the_same_write_as_its_prompt_counts() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    let (id, line) = editor
        .request("session/prompt", json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": "x"}]}));
    let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": SESSION}});
    editor.raw(format!("{line}{cancel}\n").as_bytes()).await;
    assert_eq!(editor.reply(id).await, (String::new(), "cancelled".into()));
}

#[tokio::test]
async fn a_cancel_as_a_request_is_answered_null() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    feed.session().text("a");
    let mut editor = Editor::with_session(&halo).await;
    let prompt = editor.prompt("hi").await;
    editor.line().await;
    let cancel = editor.send("session/cancel", json!({"sessionId": SESSION})).await;
    let answer = editor.line().await;
    assert_eq!((answer["id"].as_i64(), answer.get("result")), (Some(cancel), Some(&Value::Null)));
    feed.complete();
    assert_eq!(editor.until(prompt).await.1["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn two_sessions_run_side_by_side() {
    let halo = Halo::start().await;
    halo.json("POST sessions", json!({"sessionId": "one"}))
        .json("POST sessions", json!({"sessionId": "two"}));
    let (one, two) = (halo.chat(), halo.chat());
    let mut editor = Editor::start(&halo, &[]);
    editor.open_session().await;
    editor.open_session().await;
    let params = |id: &str| json!({"sessionId": id, "prompt": [{"type": "text", "text": "hi"}]});
    let first = editor.send("session/prompt", params("one")).await;
    halo.wait_for("POST chat", 1).await;
    let second = editor.send("session/prompt", params("two")).await;
    halo.wait_for("POST chat", 2).await;
    two.text("2");
    let line = editor.line().await;
    assert_eq!(
        (&line["params"]["sessionId"], said(&[line["params"]["update"].clone()])),
        (&json!("two"), "2".into())
    );
    two.complete();
    assert_eq!(editor.line().await["id"], second);
    one.text("1").complete();
    assert_eq!(editor.line().await["params"]["sessionId"], "one");
    assert_eq!(editor.line().await["id"], first);
}

#[tokio::test]
async fn an_editor_that_reads_slowly_gets_every_line_in_order() {
    let halo = Halo::start().await;
    let feed = halo.chat();
    let pieces: Vec<String> = (0..5000).map(|n| format!("{n} ")).collect();
    for piece in &pieces {
        feed.text(piece);
    }
    feed.complete();
    let mut editor = Editor::with_session(&halo).await;
    let id = editor.prompt("hi").await;
    assert_eq!(editor.reply(id).await, end(&pieces.concat()));
}
