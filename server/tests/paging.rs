//! Reading in pages while others write: nothing that stays as it is gets lost between two pages or comes twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halo_server::session::rows;
use halo_server::store::Database;
use halo_server::store::schema::Schema;
use halo_server::store::{log, sessions};
use halo_server::tool::Cut;
use proptest::prelude::*;
use rusqlite::{Connection, params};
use std::collections::HashSet;

/// An empty workspace database, with our schema and nothing else of the store.
fn database() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("halo.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(Database::open(&file, Schema::Workspace).unwrap().close());
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF").unwrap();
    (folder, conn)
}

fn add(conn: &Connection, id: &str, updated_at: i64, archived: bool) {
    conn.execute(
        "INSERT INTO sessions (id, agent_id, agent_name, access_level, created_at, updated_at, archived_at)
         VALUES (?1, 'default', 'Default', 'full', 0, ?2, ?3)",
        params![id, updated_at, archived.then_some(1)],
    )
    .unwrap();
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Meanwhile {
    /// This session (counted around) gets a message, so it is the newest.
    Used(usize),
    /// A new session.
    Made,
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop_oneof![3 => any::<usize>().prop_map(Meanwhile::Used), 1 => Just(Meanwhile::Made)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_session_that_nobody_uses_meanwhile_is_listed_once(
        // Few different times: many share one.
        times in prop::collection::vec(1i64..12, 0..60),
        limit in 1u32..8,
        changes in prop::collection::vec(prop::collection::vec(meanwhile(), 0..3), 0..30),
    ) {
        let (_folder, conn) = database();
        for (n, at) in times.iter().enumerate() {
            add(&conn, &format!("web_a_{n:02}"), *at, n % 7 == 6);
            add(&conn, &format!("web_b_{n:02}"), *at, false);
        }
        let mut changed = HashSet::new();
        let mut seen: Vec<String> = Vec::new();
        let (mut now, mut cursor, mut changes) = (100, None, changes.into_iter());
        loop {
            let (page, more) = sessions::roots(&conn, "web_a_", cursor, limit).unwrap();
            prop_assert!(page.len() >= limit as usize || !more, "a page is full unless it is the last");
            prop_assert!(page.is_sorted_by(|a, b| a.updated_at >= b.updated_at));
            cursor = page.last().map(|last| last.updated_at);
            seen.extend(page.into_iter().map(|row| row.id));
            if !more {
                break;
            }
            for change in changes.next().unwrap_or_default() {
                now += 1;
                match change {
                    Meanwhile::Used(n) => {
                        let id = format!("web_a_{:02}", n % times.len());
                        conn.execute("UPDATE sessions SET updated_at = ?2 WHERE id = ?1", params![id, now]).unwrap();
                        changed.insert(id);
                    }
                    Meanwhile::Made => add(&conn, &format!("web_a_new{now}"), now, false),
                }
            }
        }
        for n in (0..times.len()).filter(|n| n % 7 != 6) {
            let id = format!("web_a_{n:02}");
            let count = seen.iter().filter(|seen| **seen == id).count();
            prop_assert!(count == 1 || changed.contains(&id), "{} came {} times", id, count);
        }
        let unique: HashSet<&String> = seen.iter().collect();
        prop_assert_eq!(unique.len(), seen.len(), "nothing comes twice");
        prop_assert!(seen.iter().all(|id| id.starts_with("web_a_")));
    }

    #[test]
    fn every_row_of_a_log_comes_once_however_it_is_paged_while_it_grows(
        gaps in prop::collection::vec(1i64..4, 0..80),
        archived in 0usize..80,
        limit in 1u32..9,
        grows in 0i64..4,
        chunk_rows in 1u32..5,
        chunk_bytes in 0usize..60,
    ) {
        let (_folder, conn) = database();
        add(&conn, "s", 1, false);
        let insert = |seq: i64, archived: bool| {
            let row = format!("row {seq}");
            conn.execute(
                "INSERT INTO log (session_id, seq, at, row, archived) VALUES ('s', ?1, ?1, ?2, ?3)",
                params![seq, row, archived],
            )
            .unwrap();
        };
        let mut seqs = Vec::new();
        for (n, gap) in gaps.iter().enumerate() {
            seqs.push(seqs.last().unwrap_or(&0) + gap);
            insert(*seqs.last().unwrap(), n < archived);
        }
        let mut top = log::top(&conn, "s").unwrap();
        let mut seen = Vec::new();
        let mut before = None;
        loop {
            let (start, more) = log::page_start(&conn, "s", top, before, limit).unwrap();
            let end = before.map_or(top, |before: i64| top.min(before - 1));
            let (mut page, mut after) = (Vec::new(), start);
            loop {
                let chunk = log::forward(&conn, "s", after, end, None, chunk_rows, chunk_bytes).unwrap();
                let Some((last, _)) = chunk.last() else { break };
                after = *last;
                page.extend(chunk.into_iter().map(|(seq, _)| seq));
            }
            prop_assert!(page.len() == limit as usize || !more);
            before = page.first().copied();
            seen.splice(0..0, page);
            if !more {
                break;
            }
            for _ in 0..grows {
                insert(log::top(&conn, "s").unwrap() + 1, false);
            }
            // A later look has a later top; pages behind it are the same.
            top = log::top(&conn, "s").unwrap();
        }
        prop_assert_eq!(seen, seqs);
    }

    #[test]
    fn a_title_is_one_line_of_at_most_60_characters_of_the_message(
        message in "[ a-zé漢🦀\\n\\r\\t]{0,200}",
    ) {
        match rows::title(&message) {
            None => prop_assert!(message.trim().is_empty()),
            Some(title) => {
                prop_assert!(!title.trim().is_empty() && message.contains(&title) && !title.contains('\n'));
                let line = message.lines().map(str::trim).find(|line| !line.is_empty()).unwrap();
                prop_assert_eq!(title.chars().count(), line.chars().count().min(60));
            }
        }
    }

    #[test]
    fn an_output_in_the_log_is_whole_or_its_head_with_a_note(output in "[aé漢🦀]{0,80}", max in 0usize..200) {
        let shown = rows::display_output(&output, Cut::End, max);
        if output.len() <= max {
            prop_assert_eq!(shown, output);
        } else {
            let (head, note) = shown.split_once('\n').unwrap();
            prop_assert!(output.starts_with(head) && head.len() <= max && head.len() + 4 > max);
            let said = format!("{} bytes in all", output.len());
            prop_assert!(note.contains(&said));
        }
    }
}
