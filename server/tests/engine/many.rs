//! Many workspaces at once: only so many stay open, and whoever uses one does not notice.

use super::support::{Say, World, frames, id, inbound, outline, streamed, text};
use halo_server::session::{From, Sent, Workspace};
use halo_server::workspace::lock::try_lock;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// As many as stay open (docs/architecture.md, bounds).
const STAY_OPEN: usize = 64;

fn folders(world: &World, count: usize) -> Vec<PathBuf> {
    let folder = |n: usize| {
        let folder = world.folder.path().join(format!("many-{n}"));
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    (0..count).map(folder).collect()
}

async fn open(world: &World, folder: &Path) -> Workspace {
    world.engine.workspace(folder).await.unwrap()
}

async fn start(workspace: &Workspace, message: &str) -> halo_server::session::Feed {
    match workspace.session(&id("s")).send(inbound(message)).await.unwrap() {
        Sent::Started(feed) => feed,
        Sent::Queued(_) => panic!("the session was busy"),
    }
}

/// Closing goes on beside the test.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), wait).await.is_ok(), "{what}");
}

/// Whether no server runs the folder's sessions.
fn is_free(folder: &Path) -> bool {
    try_lock(folder).is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_workspaces_stay_open_and_none_that_is_in_use() {
    let world = World::new(vec![vec![text("one "), Say::Gate, text("two")], vec![text("done")]]).await;
    let folders = folders(&world, STAY_OPEN + 10);
    let busy = start(&open(&world, &folders[0]).await, "go").await;
    let held = open(&world, &folders[1]).await;
    assert_eq!(streamed(&frames(start(&open(&world, &folders[2]).await, "go").await).await), "done");
    for folder in &folders[3..] {
        open(&world, folder).await;
    }
    let count = async || world.engine.census().await.workspaces;
    until("the rest is closed", async || count().await <= STAY_OPEN).await;
    assert_eq!(count().await, STAY_OPEN, "and no more than the rest");
    assert!(!is_free(&folders[0]), "a run is in flight");
    assert!(!is_free(&folders[1]), "somebody holds it");
    assert!(is_free(&folders[2]) && is_free(&folders[3]), "the least recently used go first");
    assert!(!is_free(folders.last().unwrap()));

    let second = open(&world, &folders[0]).await.session(&id("s")).subscribe(From::Replay).await.unwrap();
    world.script.gate.add_permits(1);
    assert_eq!(streamed(&frames(busy).await), "one two");
    assert_eq!(outline(&frames(second.unwrap()).await), "resync user stream complete");
    assert!(held.roots("", None, 10).await.unwrap().0.is_empty());
    // What was closed is there again when it is asked for.
    let again = open(&world, &folders[2]).await;
    assert_eq!(again.roots("", None, 10).await.unwrap().0[0].title.as_deref(), Some("go"));
    assert_eq!(outline(&frames(start(&again, "more").await).await), "user stream complete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_use_while_too_many_were_open_is_closed_later_without_another_opening() {
    let world = World::new(vec![]).await;
    let mut held = Vec::new();
    for folder in folders(&world, STAY_OPEN + 10) {
        held.push(open(&world, &folder).await);
    }
    // Time for the looks that the openings brought about; none of them finds anything to close.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(world.engine.census().await.workspaces >= held.len());
    drop(held);
    until("the rest is closed", async || world.engine.census().await.workspaces <= STAY_OPEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_and_a_closing_of_one_folder_never_meet() {
    const ROUNDS: usize = 3;
    let world = World::new(vec![]).await;
    let folders = folders(&world, STAY_OPEN + 6);
    let visitors = (0..4).map(|visitor| {
        let (engine, mut folders) = (world.engine.clone(), folders.clone());
        folders.rotate_left(visitor * 3);
        if visitor % 2 == 1 {
            folders.reverse();
        }
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                for folder in &folders {
                    let workspace = engine.workspace(folder).await.unwrap();
                    let session = workspace.session(&id(&format!("s{visitor}")));
                    let sent = session.send(inbound(&format!("round {round}"))).await.unwrap();
                    drop((workspace, session));
                    if let Sent::Started(feed) = sent {
                        assert_eq!(frames(feed).await.last().unwrap().kind(), "complete");
                    }
                }
            }
        })
    });
    for visitor in visitors.collect::<Vec<_>>() {
        visitor.await.unwrap();
    }
    for folder in &folders {
        let workspace = open(&world, folder).await;
        for visitor in 0..4 {
            let session = id(&format!("s{visitor}"));
            let look = workspace.session(&session).snapshot().await.unwrap().unwrap();
            // Its context, and for each message itself, its answer and the answer's figures.
            assert_eq!((look.running, look.top), (false, 1 + 3 * ROUNDS as i64), "{}", folder.display());
        }
    }
    until("the rest is closed", async || world.engine.census().await.workspaces <= STAY_OPEN).await;
}
