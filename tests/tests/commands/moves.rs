//! The session that an account is in, who moves it, and whose a goal's session is.

use super::*;

#[tokio::test]
async fn new_and_switch_move_the_account_and_nothing_else_does() {
    let mut server = Server::start().await;
    let client = server.client("readonly").await;
    let (a, b) = (client.mint().await, moves(&client, "/session new").await);
    assert_eq!(account_of(&a), account_of(&b));
    // The one minted last is newer, and a message to another one makes that the newest.
    let minted = client.mint().await;
    client.turn(&a, "hello").await;
    assert_eq!(lands_in(&client).await, b);
    // A command that names its session moves only the client that sent it.
    let named = json!({"message": "/session new", "sessionId": a});
    let elsewhere = command_with(&client, &named).await.1.unwrap();
    assert_eq!(lands_in(&client).await, b);

    let list = reply(&client, "/session list").await;
    let active = list.lines().find(|line| line.starts_with('→')).unwrap();
    assert!(active.starts_with("→ 1. [me] ") && active.ends_with(" hello"), "{list}");
    assert_eq!(list.matches("[me]").count(), 4, "{list}");
    let (text, switch) = command(&client, "/session switch 2").await;
    let second = switch.unwrap();
    assert!(text.contains("session 2"), "{text}");
    assert!([&a, &minted, &elsewhere].contains(&&second) && second != b);
    assert_eq!(client.get("/api/web/history").await.body["sessionId"], json!(second));
    let frames = client.stream(client.request(Method::GET, "/api/web/subscribe")).await.rest().await;
    assert_eq!(first(&frames, "session")["sessionId"], json!(second));
    for bad in ["/session switch", "/session switch 0", "/session switch 5", "/session switch x"] {
        let text = reply(&client, bad).await;
        assert!(text.starts_with("Usage: /session switch <number>  (1-4"), "{text}");
    }
    assert_eq!(lands_in(&client).await, second);

    // It is in memory: a restart leaves the session that was active last.
    moves(&client, "/session switch 3").await;
    server.stop().await;
    server.restart().await;
    assert_eq!(lands_in(&client.at(server.url())).await, second);
}

#[tokio::test]
async fn stop_without_a_session_ends_what_runs_where_the_account_is() {
    let (server, _model) = scripted().await;
    let client = server.client("readonly").await;
    let older = moves(&client, "/session new").await;
    let mut running = client.chat(&older, "HOLD").await;
    running.until("stream").await;
    client.mint().await;
    let stopped = client.post("/api/web/stop", &json!({})).await;
    assert_eq!(stopped.body, json!({"stopped": true}));
    assert_eq!(kinds_of(&running.rest().await), ["complete"]);
}

#[tokio::test]
async fn a_session_that_was_archived_or_is_not_the_tokens_any_more_is_left() {
    let server = Server::start().await;
    let (client, other) = (server.client("full").await, server.client("workspace").await);
    let own = lands_in(&client).await;
    let foreign = lands_in(&other).await;
    let list = reply(&client, "/session list").await;
    assert!(list.contains("→ 2. [me]") && list.contains("  1. [web]"), "{list}");
    assert_eq!(moves(&client, "/session switch 1").await, foreign);
    assert_eq!(lands_in(&client).await, foreign);
    // The other token sees only its own.
    let list = reply(&other, "/session list").await;
    assert!(list.contains("→ 1. [me]") && !list.contains("2. ["), "{list}");

    let sql = "UPDATE channel_accounts SET access_level = 'readonly' WHERE account_id = ?1";
    change(&channels_db(&server), sql, [account_of(&own)]);
    assert_eq!(lands_in(&client).await, own);

    let newer = moves(&client, "/session new").await;
    change(&halo_db(&server), "UPDATE sessions SET archived_at = 1 WHERE id = ?1", [&newer]);
    assert_eq!(lands_in(&client).await, own);
}

#[tokio::test]
async fn a_long_list_says_how_many_more_there_are_and_all_can_be_reached() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    let oldest = client.mint().await;
    // The first one is older than the others by more than the clock's millisecond.
    change(&halo_db(&server), "UPDATE sessions SET updated_at = 1 WHERE id = ?1", [&oldest]);
    for _ in 0..51 {
        client.mint().await;
    }
    let list = reply(&client, "/sl").await;
    assert!(list.contains("\n  50. ") && !list.contains("51. ") && list.contains("… and 2 more"), "{list}");
    assert_eq!(moves(&client, "/ss 52").await, oldest);
}

#[tokio::test]
async fn switching_the_agent_opens_a_new_session_with_it() {
    let server = Server::start().await;
    let model = "model: { provider: demo, id: demo-instant }\ntools: [grep]\n";
    server.place().agent("poet", &format!("description: Writes verse\n{model}"));
    server.place().agent("hidden", &format!("internal: true\n{model}"));
    let client = server.client("workspace").await;
    let before = lands_in(&client).await;
    let list = reply(&client, "/agent list").await;
    assert!(list.contains("[global] poet — Writes verse") && !list.contains("hidden"), "{list}");
    assert!(list.lines().any(|line| line.contains("default") && line.ends_with('◀')), "{list}");
    let after = moves(&client, "/agent switch Poet").await;
    assert_ne!(after, before);
    assert_eq!(lands_in(&client).await, after);
    let rows = client.history(&after).await;
    assert!(rows["messages"].as_array().unwrap().iter().any(|row| row["agentName"] == "poet"), "{rows}");
    let list = reply(&client, "/al").await;
    let line = list.lines().find(|line| line.contains("poet")).unwrap();
    assert!(line.ends_with('◀'), "{list}");
    let number = line.trim().split('.').next().unwrap();
    assert_ne!(moves(&client, &format!("/as {number}")).await, after);
    let desc = reply(&client, "/agent desc").await;
    assert!(desc.starts_with("poet [global]") && desc.contains("Tools: grep"), "{desc}");
    assert!(reply(&client, "/agent desc default").await.contains("demo / demo-instant"));
    for nobody in ["nobody", "hidden", "99"] {
        let text = reply(&client, &format!("/agent switch {nobody}")).await;
        assert!(text.contains(&format!("no agent {nobody}")), "{text}");
    }
    assert!(reply(&client, "/agent switch").await.starts_with("Usage: /agent switch"));
}

#[tokio::test]
async fn switching_the_workspace_rewrites_the_account() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let before = moves(&client, "/session new").await;
    for bad in ["relative", "/nonexistent", &format!("{}/README.md", server.workspace().display())] {
        let text = reply(&client, &format!("/workspace switch {bad}")).await;
        assert!(text.starts_with("Not a folder with an absolute path: "), "{text}");
    }
    assert_eq!(lands_in(&client).await, before);
    let other = server.place().root().join("the other one");
    std::fs::create_dir(&other).unwrap();
    let text = reply(&client, &format!("/workspace switch {}", other.display())).await;
    assert!(text.contains(&*other.to_string_lossy()), "{text}");
    assert!(other.join(".halo").is_dir());
    assert!(reply(&client, "/workspace info").await.contains(&*other.to_string_lossy()));
    let after = lands_in(&client).await;
    assert_ne!(after, before);
    assert_eq!(client.sessions().await["workspace"], json!(other));
    // Back again: the session from before is the latest there.
    reply(&client, &format!("/ws {}", server.workspace().display())).await;
    assert_eq!(lands_in(&client).await, before);
}

#[tokio::test]
async fn a_token_reaches_the_judge_of_its_own_goal_and_of_no_other() {
    let server = Server::start().await;
    let (client, full) = (server.client("readonly").await, server.client("full").await);
    let own = client.mint().await;
    for (id, worker) in
        [("goal_mine", Some(own.as_str())), ("goal_other", Some("web_00000000_1")), ("goal_none", None)]
    {
        full.turn(id, "hello").await;
        if let Some(worker) = worker {
            change(&halo_db(&server), "UPDATE sessions SET goal_worker = ?2 WHERE id = ?1", [id, worker]);
        }
    }
    let frames = client.turn("goal_mine", "hello").await;
    assert_eq!(first(&frames, "session")["sessionId"], "goal_mine");
    assert_eq!(client.history("goal_mine").await["sessionId"], "goal_mine");
    assert_eq!(kinds_of(&client.subscribe("goal_mine", None).await.rest().await), ["session", "complete"]);
    assert!(!client.stop("goal_mine").await);

    for id in ["goal_other", "goal_none", "goal_unknown", "goal_mine>child", "goalmine"] {
        let refusals = [
            client.post("/api/web/chat", &json!({"sessionId": id, "message": "hello"})).await,
            client.post("/api/web/stop", &json!({"sessionId": id})).await,
            client.get(&format!("/api/web/history?sessionId={id}")).await,
            client.get(&format!("/api/web/subscribe?sessionId={id}")).await,
        ];
        for refused in refusals {
            assert_eq!(refused.status, 403, "{id}: {refused:?}");
            assert_eq!(refused.body, json!({"error": "session not owned by this token"}));
        }
    }
    // In a folder that was never used nothing is made by asking.
    let elsewhere = server.place().root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let stranger = client.with_token(Some(&server.place().token_for("readonly", &elsewhere).await));
    assert_eq!(stranger.get("/api/web/history?sessionId=goal_mine").await.status, 403);
    assert!(!elsewhere.join(".halo").exists());
}
