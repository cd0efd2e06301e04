//! From editor to agent and back: the official client drives the real adapter against the real server, which
//! works in a real folder.

use agent_client_protocol::v1::schema::{PromptRequest, SessionUpdate, StopReason, ToolCallStatus, ToolKind};
use halo_tests::acp::raw::Raw;
use halo_tests::acp::{Adapter, command, joined};
use halo_tests::place::Place;
use halo_tests::processes;
use halo_tests::server::{Launch, Server};
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

async fn stack() -> (Server, Adapter, String) {
    stack_on(Place::new()).await
}

async fn stack_on(place: Place) -> (Server, Adapter, String) {
    let server = Server::launch(place, Launch::default()).await;
    let token = server.place().token("full").await;
    let adapter = Adapter::start(server.place(), &server.address(), &token).await;
    (server, adapter, token)
}

/// Every call has begun before it ends, and has ended exactly once.
fn assert_paired(updates: &[SessionUpdate]) -> usize {
    let mut open = HashMap::new();
    for update in updates {
        match update {
            SessionUpdate::ToolCall(call) => {
                assert_eq!(open.insert(call.tool_call_id.clone(), false), None, "begun twice: {call:?}");
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let ended = open.get_mut(&update.tool_call_id).expect("an update of a call that has begun");
                assert!(!*ended, "ended twice: {update:?}");
                assert_eq!(update.fields.status, Some(ToolCallStatus::Completed));
                *ended = true;
            }
            _ => {}
        }
    }
    assert!(open.values().all(|ended| *ended), "calls without an end: {updates:?}");
    open.len()
}

#[tokio::test]
async fn a_prompt_reads_and_edits_a_file_on_disk() {
    let (server, adapter, _) = stack().await;
    let session = adapter.new_session().await;
    let orders = "read README.md\nedit notes.txt: two -> 2\nwrite new/list.txt a\\nb";
    assert_eq!(adapter.prompt(&session, orders).await, StopReason::EndTurn);

    assert_eq!(server.place().read("notes.txt"), "one\n2\nthree\n");
    assert_eq!(server.place().read("new/list.txt"), "a\nb");
    let updates = adapter.updates(&session);
    assert_eq!(assert_paired(&updates), 3);
    let calls: Vec<_> = updates
        .iter()
        .filter_map(|update| match update {
            SessionUpdate::ToolCall(call) => Some((call.kind, call.title.as_str(), call.raw_input.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(
        calls[..2],
        [
            (ToolKind::Read, "file_read: README.md", Some(json!({"path": "README.md"}))),
            (
                ToolKind::Edit,
                "file_edit: notes.txt",
                Some(json!({"path": "notes.txt", "old_string": "two", "new_string": "2"}))
            ),
        ]
    );
    assert!(adapter.said(&session).contains("The secret word is marzipan."), "{updates:?}");
    assert!(adapter.quit().await.success());
}

#[tokio::test]
async fn two_sessions_work_at_once_and_keep_their_words_apart() {
    let place = Place::new();
    place.demo("demo");
    let (_server, adapter, _) = stack_on(place).await;
    let (one, two) = (adapter.new_session().await, adapter.new_session().await);
    assert_ne!(one, two);
    let alone = (1..=60).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
    let both = async {
        tokio::join!(adapter.prompt(&one, "count 60"), adapter.prompt(&two, "count 60\nrun echo from-two"))
    };
    let overlap = async {
        adapter.wait_for("the first speaks", &one, |updates| !updates.is_empty()).await;
        adapter.wait_for("the second speaks", &two, |updates| !updates.is_empty()).await;
        // Neither has come to its end while both speak.
        (adapter.said(&one).len(), adapter.said(&two).len())
    };
    let (ends, seen) = tokio::join!(both, overlap);
    assert_eq!(ends, (StopReason::EndTurn, StopReason::EndTurn));
    assert!(seen.0 < alone.len() && seen.1 < alone.len(), "{seen:?}");
    assert_eq!(adapter.said(&one), alone);
    let other = adapter.said(&two);
    assert!(other.starts_with(&alone) && other.contains("from-two"), "{other}");
    assert_eq!(assert_paired(&adapter.updates(&two)), 1);
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_a_command_ends_it_within_two_seconds() {
    let (server, adapter, _) = stack().await;
    let session = adapter.new_session().await;
    let folder = server.workspace();
    let (end, took) = tokio::join!(adapter.prompt(&session, "run sleep 30"), async {
        adapter.wait_for("the call begins", &session, |updates| !updates.is_empty()).await;
        let begun = async {
            while processes::running_in(&folder, "sleep 30").is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        halo_tests::within("the command runs", begun).await;
        adapter.cancel(&session);
        Instant::now()
    });
    let took = took.elapsed();
    assert_eq!(end, StopReason::Cancelled);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(processes::running_in(&folder, "sleep 30"), Vec::<i32>::new());
    assert_eq!(assert_paired(&adapter.updates(&session)), 1);

    assert_eq!(adapter.prompt(&session, "say still here").await, StopReason::EndTurn);
    assert!(adapter.said(&session).ends_with("still here"));
}

#[tokio::test]
async fn a_second_prompt_to_a_busy_session_is_refused_and_harms_nothing() {
    let place = Place::new();
    place.demo("demo");
    let (_server, adapter, _) = stack_on(place).await;
    let session = adapter.new_session().await;
    let (first, second) = tokio::join!(adapter.prompt(&session, "count 40"), async {
        adapter.wait_for("it speaks", &session, |updates| !updates.is_empty()).await;
        adapter.try_prompt(&session, "say no").await
    });
    assert_eq!(first, StopReason::EndTurn);
    assert_eq!(i32::from(second.unwrap_err().code), -32600);
    assert!(adapter.said(&session).ends_with(" 39 40"));
    let empty = adapter.request(PromptRequest::new(session.clone(), Vec::new())).await;
    assert_eq!(i32::from(empty.unwrap_err().code), -32602);
}

#[tokio::test]
async fn another_adapter_loads_the_session_with_the_same_updates_as_live() {
    let (server, adapter, token) = stack().await;
    let session = adapter.new_session().await;
    let prompts = ["say hello there", "read README.md\nrun printf 'a\\nb'", "find marzipan", "list src"];
    let mut live = Vec::new();
    for prompt in prompts {
        let before = adapter.updates(&session).len();
        adapter.prompt(&session, prompt).await;
        live.push(
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": prompt}}),
        );
        live.extend(joined(&adapter.updates(&session)[before..]));
    }
    adapter.quit().await;

    let second = Adapter::start(server.place(), &server.address(), &token).await;
    second.load(&session).await.expect("session/load");
    let replayed = joined(&second.updates(&session));
    assert_eq!(replayed.iter().map(shape).collect::<Vec<_>>(), merged(&live));
    assert_eq!(second.prompt(&session, "say and on").await, StopReason::EndTurn);

    let missing = second.load("web_00000000_0_nothing").await.unwrap_err();
    assert_eq!(i32::from(missing.code), -32602, "{missing:?}");
}

/// What an editor shows of an update. A replayed call is whole; a live one comes in two steps.
fn shape(update: &serde_json::Value) -> serde_json::Value {
    match update["sessionUpdate"].as_str() {
        Some("tool_call") => json!({
            "toolCallId": update["toolCallId"], "title": update["title"], "kind": update["kind"],
            "rawInput": update["rawInput"], "content": update["content"],
        }),
        _ => update.clone(),
    }
}

/// The live updates with each call as one, at its begin.
fn merged(live: &[serde_json::Value]) -> Vec<serde_json::Value> {
    let mut merged: Vec<serde_json::Value> = Vec::new();
    for update in live {
        if update["sessionUpdate"] == "tool_call_update" {
            let call = merged.iter_mut().find(|call| call["toolCallId"] == update["toolCallId"]);
            call.expect("a call that has begun")["content"] = update["content"].clone();
        } else {
            merged.push(shape(update));
        }
    }
    merged
}

#[tokio::test]
async fn the_list_has_the_sessions_newest_first_with_their_titles() {
    let (server, adapter, _) = stack().await;
    let (one, two) = (adapter.new_session().await, adapter.new_session().await);
    adapter.prompt(&two, "say the second").await;
    adapter.prompt(&one, "say the first").await;
    let list = adapter.list().await;
    let rows: Vec<_> = list.sessions.iter().map(|row| (&*row.session_id.0, row.title.as_deref())).collect();
    assert_eq!(rows, [(one.as_str(), Some("say the first")), (two.as_str(), Some("say the second"))]);
    let workspace = std::fs::canonicalize(server.workspace()).unwrap();
    for row in &list.sessions {
        assert_eq!(std::fs::canonicalize(&row.cwd).unwrap(), workspace);
        assert!(row.updated_at.as_deref().is_some_and(|at| at.ends_with('Z')), "{row:?}");
    }
    assert_eq!(list.next_cursor, None);
}

#[tokio::test]
async fn a_session_survives_the_restart_of_the_server() {
    let (mut server, adapter, token) = stack().await;
    let session = adapter.new_session().await;
    adapter.prompt(&session, "say before").await;
    adapter.quit().await;
    server.stop().await;
    server.restart().await;
    let second = Adapter::start(server.place(), &server.address(), &token).await;
    second.load(&session).await.expect("session/load");
    assert_eq!(second.said(&session), "before");
    second.prompt(&session, "say after").await;
    assert_eq!(second.said(&session), "beforeafter");
}

#[tokio::test]
async fn a_token_that_is_refused_is_told_with_the_address_and_never_shown() {
    let server = Server::start().await;
    let token = "wrong-wrong-wrong-wrong-wrong-12";
    let adapter = Adapter::start(server.place(), &server.address(), token).await;
    let error = adapter
        .request(agent_client_protocol::v1::schema::NewSessionRequest::new(server.workspace()))
        .await
        .unwrap_err();
    let text = serde_json::to_string(&error).unwrap();
    assert!(text.contains(&format!("token refused by {}", server.url())), "{text}");
    let said = format!("{}{}", adapter.lines().concat(), adapter.stderr());
    assert!(!said.contains(token), "{said}");
}

#[tokio::test]
async fn lines_that_no_client_should_send_are_answered_and_the_next_one_works() {
    let (server, _adapter, token) = stack().await;
    let mut raw = Raw::spawn(command(server.place(), &server.address(), &token));
    raw.send("this is no JSON").await;
    assert_eq!(raw.receive().await["error"]["code"], -32700);
    raw.send("").await;
    raw.send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","method":"no/such","params":{}}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","id":1,"method":"session/set_mode","params":{}}"#).await;
    assert_eq!(raw.answer(1).await["error"]["code"], -32601);
    raw.send(r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":7}}"#).await;
    let answer = raw.answer(2).await;
    assert_eq!(answer["result"]["protocolVersion"], 1, "{answer}");
    assert_eq!(answer["result"]["agentInfo"]["name"], "halo");
    assert!(raw.quit().await.success());
}
