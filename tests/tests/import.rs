//! `halo import` on an old home of a thousand sessions, some of them broken: what can be read comes over and works,
//! what cannot is named, the old files stay as they are, and it can be repeated at any time.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::old_home::{self, OWNER, OldHome, START, session_id, token};
use halo_tests::place::{Ended, Place};
use halo_tests::server::{Launch, Server};
use halo_tests::web::Client;
use halo_tests::within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Every file below the folder with its bytes. Locks are nobody's content.
fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_none_or(|extension| extension != "lock") {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn old_place(sessions: usize) -> (Place, OldHome) {
    let place = Place::new();
    let old = old_home::write(&place, sessions);
    (place, old)
}

async fn import(place: &Place, args: &[&str]) -> Ended {
    let ended = place.run([&["import"], args].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

fn says(ended: &Ended, line: &str) {
    assert!(ended.stdout.lines().any(|found| found == line), "{line:?} in {}", ended.stdout);
}

/// The databases are set aside with their bytes, the session files are as they were.
fn assert_untouched(old: &OldHome, before: &BTreeMap<PathBuf, Vec<u8>>) {
    for file in &old.files {
        assert_eq!(fs::read(file).ok().as_ref(), before.get(file), "{}", file.display());
    }
    for path in &old.databases {
        for suffix in ["", "-wal"] {
            let kept = with(&with(path, ".node"), suffix);
            assert!(fs::read(&kept).ok().as_ref() == before.get(&with(path, suffix)), "{}", kept.display());
        }
        assert!(!with(path, "-wal").exists() && !with(path, ".import").exists(), "{}", path.display());
    }
}

fn contents(history: &Value) -> Vec<&str> {
    history["messages"].as_array().unwrap().iter().map(|row| row["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_old_home_comes_over_with_all_that_can_be_read() {
    let (place, old) = old_place(1000);
    let before = bytes(place.root());
    let counts = |done: &str| {
        [
            format!("accounts: 4 {done}, 0 were here already"),
            format!("sessions: {} {done} from 3 workspaces, 0 were here already", old.sessions),
            format!(
                "rows: {} ({} of them archived); messages for the model: {}",
                old.rows,
                old.archived,
                messages()
            ),
            format!("left out: {}, each named above", old.broken.len() + 3),
        ]
    };

    let dry = import(&place, &["--dry-run"]).await;
    for line in counts("would be taken over") {
        says(&dry, &line);
    }
    assert!(bytes(place.root()) == before, "a dry run writes nothing");

    let real = import(&place, &[]).await;
    for line in counts("taken over") {
        says(&real, &line);
    }
    for name in old.broken.iter().map(String::as_str).chain(["brokenac", "telegram", "gone"]) {
        assert!(
            real.stderr.lines().any(|line| line.contains("left out: ") && line.contains(name)),
            "{name}: {real:?}"
        );
    }
    assert_untouched(&old, &before);
    for (path, bytes) in bytes(&place.home()) {
        let holds = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
        let kept = path.to_string_lossy().contains(".node");
        assert!(kept || !holds(&token(OWNER)), "a clear token in {}", path.display());
    }

    the_sessions_are_what_they_were(&place.workspace().join(".halo/halo.db"));
    let imported = bytes(place.root());
    let again = import(&place, &[]).await;
    says(&again, "accounts: 0 taken over, 4 were here already");
    says(&again, &format!("sessions: 0 taken over from 3 workspaces, {} were here already", old.sessions));
    assert!(bytes(place.root()) == imported, "a second run changes nothing");

    a_server_knows_all_of_it(place).await;
}

/// Two messages and the synthetic result of the open call, for the sessions with a whole history.
fn messages() -> usize {
    let whole = |n: &usize| !(3..=7).contains(n) && n % 50 != 1 && n % 40 != 2;
    (0..1000).filter(whole).count() * 3
}

fn the_sessions_are_what_they_were(file: &Path) {
    let db = rusqlite::Connection::open(file).unwrap();
    let text = |sql: &str| -> String { db.query_row(sql, [], |row| row.get(0)).unwrap() };
    let row = |id: String| {
        let sql = format!(
            "SELECT concat_ws(' ', ifnull(parent_id, '-'), access_level, created_at, updated_at, ifnull(stopped_at, '-'),
             ifnull(archived_at, '-'), exchange_count, context_tokens, total_output_tokens) FROM sessions WHERE id = '{id}'"
        );
        text(&sql)
    };
    let at = |n: i64| format!("{} {}", START + n * 1000, START + n * 1000 + 9);
    assert_eq!(row(session_id(0)), format!("- full {} - - 1 110 10", at(0)));
    let sub_session = format!("{} full {} {} - 1 110 10", session_id(8), at(9), START + 9_009);
    assert_eq!(row(session_id(9)), sub_session, "what the old program left of sub-agents does not go on");
    assert_eq!(row(session_id(13)), format!("- workspace {} {} - 1 110 10", at(13), START + 13_005));
    assert_eq!(row(session_id(89)), format!("- readonly {} - {} 1 110 10", at(89), START + 89_006));
    assert_eq!(row(session_id(42)).split(' ').nth(6), Some("3"), "archived messages count");
    assert_eq!(row("flat".into()).split(' ').nth(1), Some("readonly"), "of an unknown level the lowest");
    assert_eq!(text("SELECT goal_worker FROM sessions WHERE id = 'goal_1'"), session_id(9));
    assert_eq!(
        text("SELECT item_type || item_id || scope || disabled_at FROM disabled_items"),
        "skillpdfworkspace9"
    );
    assert_eq!(text("SELECT count(*) || '' FROM log WHERE row LIKE '%secret prompt%'"), "0");
}

async fn a_server_knows_all_of_it(place: Place) {
    let server = Server::launch(place, Launch::default()).await;
    let owner = Client::new(server.url(), Some(&token(OWNER)));
    let (second, off) =
        (owner.with_token(Some(&token("625ff389"))), owner.with_token(Some(&token("39c15ef5"))));
    assert_eq!(contents(&second.history("web_625ff389_1").await)[1], "hello 1");
    assert_eq!(off.get("/api/web/sessions").await.status, 401, "a disabled account stays so");

    let whole = owner.history(&session_id(20)).await;
    let expected = ["[System Prompt: Default]", "hello 20", "[Usage] in=100 out=10 cache=0", "ok"];
    assert_eq!(contents(&whole), expected);
    let rows = whole["messages"].as_array().unwrap();
    assert_eq!(rows[0].get("systemPrompt"), None, "the prompt stays hidden");
    assert_eq!(rows[3]["contentBlocks"], json!([{"type": "text", "text": "ok", "turnId": "t"}]));
    assert_eq!(rows[3]["timestamp"], START + 20_003);

    let legacy = owner.history(&session_id(51)).await;
    assert_eq!(contents(&legacy), ["hello 51", "found", "sub"]);
    let row = &legacy["messages"][1];
    assert_eq!((&row["type"], &row["deleted"]), (&Value::Null, &json!(true)));
    assert_eq!(row["toolCalls"], json!([{"name": "grep", "input": "pattern: x", "output": "y"}]));
    let own = owner.get(&format!("/api/web/history?sessionId={}&since=0", session_id(51))).await;
    assert_eq!(contents(&own.body), ["hello 51", "found"], "rows of a sub-session are known as such");

    assert_eq!(contents(&owner.history("会话-10").await)[1], "hello 10");
    assert_eq!(contents(&owner.history(&session_id(9)).await)[1], "hello 9");
    assert_eq!(contents(&owner.history(&session_id(8)).await)[1], "hello \u{fffd} 8");
    assert_eq!(contents(&owner.history("flat").await)[1], "flat 1");
    assert_eq!(contents(&owner.history(&format!("web_{OWNER}_unknown")).await)[1], "lost 1");
    assert_eq!(owner.history(&session_id(6)).await["messages"], json!([]));
    for broken in [3, 4, 5] {
        let answer = owner.get(&format!("/api/web/history?sessionId={}", session_id(broken))).await;
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    archived_rows_are_found_by_paging(&owner).await;

    let mut listed = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = owner.get(&format!("/api/web/sessions?cursor={cursor}")).await.body;
        for session in page["sessions"].as_array().unwrap() {
            let known = listed.insert(session["sessionId"].as_str().unwrap().to_owned(), session.clone());
            assert_eq!(known, None, "nothing is listed twice");
        }
        let Some(next) = page["nextCursor"].as_i64() else { break };
        cursor = next.to_string();
    }
    let shown = |n: &usize| !(3..=5).contains(n) && ![9, 10, 19, 29].contains(&(n % 100)) && n % 90 != 89;
    assert_eq!(listed.len(), (0..1000).filter(shown).count() + 1, "its own roots that are not archived");
    let entry = &listed[&session_id(20)];
    assert_eq!(
        (&entry["title"], &entry["updatedAt"]),
        (&json!(format!("Title of {}", session_id(20))), &json!(START + 20_009))
    );

    let frames = owner.turn(&session_id(20), "read README.md").await;
    assert_eq!(frames.last().unwrap().kind(), "complete");
    let after = owner.history(&session_id(20)).await;
    assert_eq!(after["messages"].as_array().unwrap()[..4], rows[..], "a session goes on after what was said");
    assert!(contents(&after).contains(&"read README.md"));
}

async fn archived_rows_are_found_by_paging(owner: &Client) {
    let id = session_id(42);
    let active = owner.history(&id).await;
    assert_eq!(contents(&active)[1], "third 42");
    assert_eq!(active["messages"].as_array().unwrap().len(), 4);
    let page = |query: String| async move {
        owner.get(&format!("/api/web/history?sessionId={}&{query}", session_id(42))).await.body
    };
    let newest = page("limit=10".into()).await;
    assert_eq!((&newest["messages"], &newest["hasMore"]), (&active["messages"], &json!(true)));
    let mut rows: Vec<Value> = newest["messages"].as_array().unwrap().clone();
    loop {
        let before = rows[0]["id"].as_str().unwrap();
        let older = page(format!("limit=3&before={before}")).await;
        let mut found = older["messages"].as_array().unwrap().clone();
        found.append(&mut rows);
        rows = found;
        if older["hasMore"] == false {
            break;
        }
    }
    let said: Vec<&str> =
        rows.iter().filter(|row| row["role"] == "user").map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!((said, rows.len()), (vec!["first 42", "second 42", "third 42"], 12));
    let since = owner.get(&format!("/api/web/history?sessionId={id}&since=0")).await;
    assert_eq!(since.body["messages"], active["messages"]);
}

#[tokio::test]
async fn a_strict_model_takes_the_history_of_an_imported_session() {
    let (place, _) = old_place(3);
    import(&place, &[]).await;
    let model = ModelServer::start().await.unwrap();
    model.set_strict(true);
    place.scripted(&model, Protocol::Anthropic);
    let server = Server::launch(place, Launch::default()).await;
    let owner = Client::new(server.url(), Some(&token(OWNER)));
    let frames = owner.turn(&session_id(0), "go on").await;
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
    let sent = model.last_request().unwrap().body["messages"].to_string();
    assert!(sent.contains("hello 0") && sent.contains("I look.") && sent.contains("call_1"), "{sent}");
}

#[tokio::test]
async fn nothing_is_done_while_a_server_or_another_process_is_at_work() {
    let (place, old) = old_place(5);
    let halo = place.workspace().join(".halo");
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    fs::write(halo.join("runtime.lock"), other.id().to_string()).unwrap();
    let before = bytes(place.root());
    for args in [&["import"][..], &["import", "--dry-run"]] {
        let ended = place.run(args).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(&format!("in use by process {}", other.id())), "{ended:?}");
    }
    assert!(bytes(place.root()) == before);
    other.kill().unwrap();
    other.wait().unwrap();
    import(&place, &[]).await;
    assert_untouched(&old, &before);

    let server = Server::launch(place, Launch::default()).await;
    let ended = server.place().run(["import"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("a server runs on") && ended.stderr.lines().count() == 1, "{ended:?}");
}

#[tokio::test]
async fn whoever_looks_sees_how_far_it_is_and_a_log_does_not() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let (place, old) = old_place(100);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let side = fs::File::options().read(true).write(true).open(&name).unwrap();
    let mut command = place.halo(["import"]);
    command.stdout(Stdio::null()).stderr(side);
    let shown = tokio::task::spawn_blocking(move || {
        let (mut terminal, mut shown) = (fs::File::from(terminal), Vec::new());
        // Ends with an error once nobody has the other side open.
        let _ = std::io::Read::read_to_end(&mut terminal, &mut shown);
        String::from_utf8(shown).unwrap()
    });
    let mut child = command.spawn().unwrap();
    drop(command);
    assert!(within("the import ends", child.wait()).await.unwrap().success());
    let shown = within("all is shown", shown).await.unwrap();
    let steps = shown.matches(" sessions").count();
    assert!(shown.contains("\r\u{1b}[Kworkspace: 20 of ") && steps >= 4, "{shown:?}");
    for line in shown.lines() {
        let last = line.rsplit("\u{1b}[K").next().unwrap();
        assert!(!last.contains(" sessions"), "what was shown makes room: {line:?}");
    }

    let (place, _) = old_place(100);
    let ended = import(&place, &[]).await;
    assert!(!ended.stderr.contains('\r') && old.sessions > 20, "{ended:?}");
}

#[tokio::test]
async fn what_was_revoked_since_does_not_come_back() {
    let (place, _) = old_place(5);
    import(&place, &[]).await;
    assert_eq!(place.run(["token", "revoke", OWNER]).await.code, Some(0));
    let again = import(&place, &[]).await;
    says(&again, "accounts: 0 taken over, 4 were here already");
    let listed = place.run(["token", "list"]).await;
    assert!(listed.stdout.contains("625ff389") && !listed.stdout.contains(OWNER), "{listed:?}");
}

#[tokio::test]
async fn a_mended_file_comes_in_with_the_next_run() {
    let (place, old) = old_place(6);
    import(&place, &[]).await;
    let file = place.workspace().join(format!(".halo/sessions/default/{}.json", session_id(4)));
    fs::write(
        &file,
        json!({"messages": [{"role": "user", "content": "mended", "timestamp": START}]}).to_string(),
    )
    .unwrap();
    let again = import(&place, &[]).await;
    says(&again, &format!("sessions: 1 taken over from 3 workspaces, {} were here already", old.sessions));
    let server = Server::launch(place, Launch::default()).await;
    let owner = Client::new(server.url(), Some(&token(OWNER)));
    assert_eq!(contents(&owner.history(&session_id(4)).await), ["mended"]);
    assert_eq!(contents(&owner.history(&session_id(0)).await)[1], "hello 0");
}

#[tokio::test]
async fn another_home_is_read_and_left_as_it_is() {
    let (place, _) = old_place(5);
    let old_home = place.root().join("old");
    fs::rename(place.home(), &old_home).unwrap();
    let before = bytes(&old_home);
    let from = old_home.to_str().unwrap();
    for known in [false, true] {
        let ended = import(&place, &["--from", from]).await;
        let (new, old) = if known { (0, 4) } else { (4, 0) };
        says(&ended, &format!("accounts: {new} taken over, {old} were here already"));
        assert!(bytes(&old_home) == before);
    }
}

#[tokio::test]
async fn an_import_that_is_killed_anywhere_can_be_repeated() {
    let signs = [
        "workspace/.halo/halo.db.import",
        "workspace/.halo/halo.db.node",
        "second/.halo/halo.db.import",
        "home/global/runs.db.node",
        "home/secrets/channels/channels.db.import",
        "home/secrets/channels/channels.db.node",
    ];
    for sign in signs {
        let (place, old) = old_place(300);
        let before = bytes(place.root());
        let sign = place.root().join(sign);
        let mut command = place.halo(["import"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).env("TMPDIR", place.user_home());
        let mut child = command.spawn().unwrap();
        let seen = async {
            while !sign.exists() && child.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        };
        within("the import begins", seen).await;
        // It may have come to its end meanwhile.
        let _ = child.start_kill();
        within("its end", child.wait()).await.unwrap();

        let database = place.workspace().join(".halo/halo.db");
        let header = fs::read(&database).unwrap();
        let ours = header.get(68..72) == Some(b"halo");
        assert!(ours || before.get(&database) == Some(&header), "{}: neither old nor new", sign.display());
        import(&place, &[]).await;
        assert_untouched(&old, &before);
        let again = import(&place, &[]).await;
        says(&again, "accounts: 0 taken over, 4 were here already");
        says(
            &again,
            &format!("sessions: 0 taken over from 3 workspaces, {} were here already", old.sessions),
        );
    }
}
