//! Writes a home and workspaces as the Node program leaves them: databases with a part of their rows only in the log,
//! session files of several ages, archives, and files that were broken on the way. Counts what it writes.

use crate::place::Place;
use flate2::Compression;
use flate2::write::GzEncoder;
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The id of the account that owns the sessions.
pub const OWNER: &str = "a74dc206";
/// The time of the first session, in milliseconds since the Unix epoch.
pub const START: i64 = 1_796_148_000_000;

/// What was written.
#[derive(Debug, Default)]
pub struct OldHome {
    /// Sessions that can be taken over.
    pub sessions: usize,
    /// Rows of their logs, archived ones included.
    pub rows: usize,
    /// Archived rows.
    pub archived: usize,
    /// File names and ids that must be named as left out.
    pub broken: Vec<String>,
    /// Every session file and archive.
    pub files: Vec<PathBuf>,
    /// Where there was a database, and where its renamed form must be.
    pub databases: Vec<PathBuf>,
}

/// The token of an account.
pub fn token(account: &str) -> String {
    format!("{account:-<32}")
}

/// The id of the session number `n` of the owner.
pub fn session_id(n: usize) -> String {
    match n % 100 {
        10 => format!("会话-{n}"),
        9 | 19 | 29 => format!("web_{OWNER}_{}>part_{n}", n - 1),
        _ => format!("web_{OWNER}_{n}"),
    }
}

/// Writes an old home into the place, with `count` sessions in its workspace and a few in two others.
pub fn write(place: &Place, count: usize) -> OldHome {
    let mut old = OldHome::default();
    let second = place.root().join("second");
    let third = place.root().join("third");
    accounts(place, &second);
    place.private("global/runs.db", "");
    let third_path = third.display().to_string();
    database(&place.home().join("global/runs.db"), |db| {
        db.execute_batch(
            "CREATE TABLE running_sessions (workspace TEXT, session_id TEXT, started_at INTEGER,
             PRIMARY KEY (workspace, session_id));",
        )
        .expect("a schema");
        db.execute("INSERT INTO running_sessions VALUES (?1, 'cli_1', 1)", [&third_path]).expect("a row");
    });
    database(&place.home().join("global/a2a.db"), |db| {
        db.execute_batch("CREATE TABLE tasks (id TEXT PRIMARY KEY); INSERT INTO tasks VALUES ('t')")
            .expect("a schema");
    });
    sessions(&mut old, &place.workspace(), count);
    for (workspace, id) in [(&second, "web_625ff389_1"), (&third, "cli_1")] {
        let mut rows = Vec::new();
        old.session(workspace, &mut rows, id, &json!({"messages": turn(1, "hello")}));
        write_rows(workspace, &rows);
    }
    for path in ["home/secrets/channels/channels.db", "home/global/runs.db", "home/global/a2a.db"] {
        old.databases.push(place.root().join(path));
    }
    for workspace in [&place.workspace(), &second, &third] {
        old.databases.push(workspace.join(".halo/halo.db"));
    }
    old
}

fn accounts(place: &Place, second: &Path) {
    place.private("secrets/channels/channels.db", "");
    let file = place.home().join("secrets/channels/channels.db");
    let rows = [
        (OWNER, "web", place.workspace(), true, "full", json!({"token": token(OWNER)}).to_string()),
        (
            "625ff389",
            "web",
            second.to_owned(),
            true,
            "readonly",
            json!({"token": token("625ff389")}).to_string(),
        ),
        (
            "39c15ef5",
            "web",
            place.workspace(),
            false,
            "workspace",
            json!({"token": token("39c15ef5")}).to_string(),
        ),
        (
            "3931fc85",
            "web",
            place.root().join("gone"),
            true,
            "odd",
            json!({"token": token("3931fc85")}).to_string(),
        ),
        ("brokenac", "web", place.workspace(), true, "full", "{\"tok".to_owned()),
        ("telegram", "telegram", place.workspace(), true, "full", json!({"botToken": "x"}).to_string()),
    ];
    database(&file, |db| {
        db.execute_batch(
            "CREATE TABLE channel_accounts (account_id TEXT PRIMARY KEY, channel_type TEXT NOT NULL,
             workspace_path TEXT NOT NULL, label TEXT, enabled INTEGER DEFAULT 1, access_level TEXT DEFAULT 'readonly',
             language TEXT DEFAULT 'en', config TEXT, created_at INTEGER, updated_at INTEGER)",
        )
        .expect("a schema");
        for (id, kind, workspace, enabled, level, config) in rows {
            let path = workspace.display().to_string();
            db.execute(
                "INSERT INTO channel_accounts VALUES (?1, ?2, ?3, 'a label', ?4, ?5, 'zh', ?6, 17, 18)",
                params![id, kind, path, enabled, level, config],
            )
            .expect("a row");
        }
    });
}

/// A row of `agent_sessions`.
struct Row {
    id: String,
    level: Option<&'static str>,
    at: i64,
    stopped: Option<i64>,
    archived: Option<i64>,
    exchanges: i64,
}

fn sessions(old: &mut OldHome, workspace: &Path, count: usize) {
    let mut rows = Vec::new();
    for n in 0..count {
        let id = session_id(n);
        let file = file_of(workspace, &id);
        let whole =
            json!({"version": 1, "messages": turn(n, "hello"), "rawMessages": history(n), "archiveCount": 0});
        match n {
            3 => old.broken(&mut rows, &file, &id, "{\"messages\": [}"),
            4 => {
                let text = whole.to_string();
                old.broken(&mut rows, &file, &id, &text[..text.len() / 2]);
            }
            5 => old.broken(&mut rows, &file, &id, ""),
            6 => old.row(&mut rows, &id, 0),
            7 => {
                old.session(workspace, &mut rows, &id, &json!({"messages": turn(n, "x"), "archiveCount": 2}));
                let good = archive(&file, 1, &turn(n, "archived"));
                let bad = archive(&file, 2, &turn(n, "lost"));
                let bytes = fs::read(&bad).expect("the archive");
                fs::write(&bad, &bytes[..bytes.len() - 20]).expect("the archive");
                old.rows += 4;
                old.archived += 4;
                old.broken.push(name_of(&bad));
                old.files.extend([good, bad]);
            }
            8 => {
                // JavaScript cuts a text between the halves of a character and writes what is left as an escape.
                let text = whole.to_string().replace("hello", "hello \\ud83d");
                old.session_text(workspace, &mut rows, &id, &text, 4);
            }
            _ if n % 50 == 1 => {
                let messages = json!([
                    {"id": "1", "role": "user", "content": format!("hello {n}"), "timestamp": at(n)},
                    {"id": "2", "role": "assistant", "content": "found", "timestamp": at(n) + 1, "agentName": "Old",
                     "toolCalls": [{"name": "grep", "input": "pattern: x", "output": "y"}], "deleted": true},
                    {"id": "3", "role": "user", "taskId": format!("{id}>a"), "content": "sub", "timestamp": at(n) + 2},
                    null,
                ]);
                old.session(workspace, &mut rows, &id, &json!({"messages": messages}));
                old.rows -= 1;
            }
            _ if n % 40 == 2 => {
                let parts = [archive(&file, 1, &turn(n, "first")), archive(&file, 2, &turn(n, "second"))];
                // Never completed: its number is above the count.
                let unfinished = archive(&file, 3, &turn(n, "never"));
                old.files.extend(parts);
                old.files.push(unfinished);
                old.rows += 8;
                old.archived += 8;
                old.session(
                    workspace,
                    &mut rows,
                    &id,
                    &json!({"messages": turn(n, "third"), "archiveCount": 2}),
                );
            }
            _ => old.session(workspace, &mut rows, &id, &whole),
        }
    }
    old.row(&mut rows, "goal_1", 0);
    old.row(&mut rows, "bad id/with a slash", 0);
    old.sessions -= 1;
    old.broken.push("bad id/with a slash".into());
    // A file that the database does not know, and one from before agents had folders.
    old.session(
        workspace,
        &mut Vec::new(),
        &format!("web_{OWNER}_unknown"),
        &json!({"messages": turn(1, "lost")}),
    );
    let flat = workspace.join(".halo/sessions/flat.json");
    fs::write(
        &flat,
        json!({"messages": turn(1, "flat"), "createdAt": "2026-12-01T18:06:13.010Z"}).to_string(),
    )
    .expect("a session file");
    old.sessions += 1;
    old.rows += 4;
    old.files.push(flat);
    write_rows(workspace, &rows);
}

impl OldHome {
    fn session(&mut self, workspace: &Path, rows: &mut Vec<Row>, id: &str, file: &Value) {
        let count = file["messages"].as_array().map_or(0, Vec::len);
        self.session_text(workspace, rows, id, &file.to_string(), count);
    }

    fn session_text(&mut self, workspace: &Path, rows: &mut Vec<Row>, id: &str, text: &str, count: usize) {
        let file = file_of(workspace, id);
        fs::write(&file, text).expect("a session file");
        self.files.push(file);
        self.rows += count;
        self.row(rows, id, 1);
    }

    fn row(&mut self, rows: &mut Vec<Row>, id: &str, exchanges: i64) {
        self.sessions += 1;
        let n = rows.len();
        let at = at(n);
        rows.push(Row {
            id: id.to_owned(),
            level: [None, Some("workspace"), Some("readonly")][n % 3],
            at,
            stopped: (n % 7 == 6).then_some(at + 5),
            archived: (n % 90 == 89).then_some(at + 6),
            exchanges,
        });
    }

    fn broken(&mut self, rows: &mut Vec<Row>, file: &Path, id: &str, text: &str) {
        self.row(rows, id, 1);
        self.sessions -= 1;
        fs::write(file, text).expect("a session file");
        self.files.push(file.to_owned());
        self.broken.push(name_of(file));
    }
}

fn write_rows(workspace: &Path, rows: &[Row]) {
    database(&workspace.join(".halo/halo.db"), |db| {
        db.execute_batch(
            "CREATE TABLE agent_sessions (id TEXT PRIMARY KEY, parent_id TEXT, agent_id TEXT NOT NULL, agent_name TEXT,
             description TEXT, working_dir TEXT, access_level TEXT, created_at INTEGER, updated_at INTEGER,
             stopped_at INTEGER, archived_at INTEGER, goal TEXT, title TEXT, exchange_count INTEGER DEFAULT 0,
             context_tokens INTEGER DEFAULT 0, total_output_tokens INTEGER DEFAULT 0);
             CREATE TABLE disabled_items (item_type TEXT, item_id TEXT, scope TEXT, disabled_at INTEGER,
             PRIMARY KEY (item_type, item_id, scope));
             INSERT INTO disabled_items VALUES ('skill', 'pdf', 'workspace', 9);
             CREATE TABLE sessions (id TEXT PRIMARY KEY);",
        )
        .expect("a schema");
        for row in rows {
            let parent = row.id.rsplit_once('>').map(|(parent, _)| parent.to_owned());
            db.execute(
                "INSERT INTO agent_sessions VALUES (?1, ?2, 'default', 'Default', 'made by a test', NULL, ?3, ?4, ?5,
                 ?6, ?7, ?8, ?9, ?10, 110, 10)",
                params![row.id, parent, row.level, row.at, row.at + 9, row.stopped, row.archived,
                    goal_of(&row.id), format!("Title of {}", row.id), row.exchanges],
            )
            .expect("a row");
        }
    });
}

/// What the judge of a goal knows of it.
fn goal_of(id: &str) -> Option<String> {
    let goal = json!({"goalId": id, "workerSessionId": session_id(9), "status": "done", "round": 2});
    id.starts_with("goal_").then(|| goal.to_string())
}

/// Makes a database whose rows are in its log, as a killed process leaves it.
fn database(path: &Path, fill: impl FnOnce(&Connection)) {
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let live = elsewhere.path().join("live.db");
    let db = Connection::open(&live).expect("a database");
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; BEGIN").expect("a log");
    fill(&db);
    db.execute_batch("COMMIT").expect("the rows");
    fs::copy(&live, path).expect("the database");
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    fs::copy(log(&live), log(path)).expect("its log");
}

fn file_of(workspace: &Path, id: &str) -> PathBuf {
    let folder = workspace.join(".halo/sessions/default");
    fs::create_dir_all(&folder).expect("the sessions' folder");
    folder.join(format!("{}.json", id.rsplit('>').next().unwrap_or_default()))
}

fn archive(session_file: &Path, number: u32, rows: &Value) -> PathBuf {
    let path = session_file.with_extension(format!("arch.{number}.json.gz"));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(rows.to_string().as_bytes()).expect("gzip");
    fs::write(&path, gzip.finish().expect("gzip")).expect("an archive");
    path
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn at(n: usize) -> i64 {
    START + n as i64 * 1000
}

/// The four rows of a turn.
fn turn(n: usize, message: &str) -> Value {
    let at = at(n);
    json!([
        {"id": "m_x_1", "type": "context", "role": "system", "content": "[System Prompt: Default]",
         "timestamp": at, "agentName": "Default", "systemPrompt": "the secret prompt"},
        {"id": "m_x_2", "type": "user", "role": "user", "content": format!("{message} {n}"), "timestamp": at + 1},
        {"id": "m_x_3", "type": "usage", "role": "system", "content": "[Usage] in=100 out=10 cache=0",
         "timestamp": at + 2, "agentName": "Default", "turnId": "t",
         "usage": {"inputTokens": 100, "outputTokens": 10, "totalTokens": 110}},
        {"id": "m_x_4", "type": "assistant", "role": "assistant", "content": "ok", "timestamp": at + 3,
         "agentName": "Default", "contentBlocks": [{"type": "text", "text": "ok", "turnId": "t"}]},
    ])
}

/// A model history that ends in the middle of a tool call.
fn history(n: usize) -> Value {
    json!([
        {"role": "user", "content": [{"type": "text", "text": format!("[2026-12-01T18:00:00Z] hello {n}")}]},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "call_1", "name": "grep", "input": {"pattern": "x"}}]},
    ])
}
