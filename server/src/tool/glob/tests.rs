use super::super::testing::Place;
use super::*;
use crate::access::AccessLevel;

async fn find_in(place: &Place, pattern: &str) -> String {
    place.ok(&Glob, json!({"pattern": pattern})).await
}

fn tree() -> Place {
    let place = Place::new();
    for path in [
        "a.rs",
        "src/b.rs",
        "src/deep/c.rs",
        "src/d.ts",
        "node_modules/x.rs",
        "dist/y.rs",
        ".next/z.rs",
        ".git/w.rs",
    ] {
        place.put(path, "");
    }
    place
}

#[tokio::test]
async fn patterns_match_paths_below_the_folder_in_alphabetical_order() {
    let place = tree();
    assert_eq!(find_in(&place, "**/*.rs").await, "a.rs\nsrc/b.rs\nsrc/deep/c.rs");
    assert_eq!(find_in(&place, "*.rs").await, "a.rs");
    assert_eq!(find_in(&place, "./src/*.{rs,ts}").await, "src/b.rs\nsrc/d.ts");
    assert_eq!(find_in(&place, "-*").await, "No files match.");
    assert_eq!(find_in(&place, place.at("src/**/*.rs").to_str().unwrap()).await, "src/b.rs\nsrc/deep/c.rs");
    assert_eq!(find_in(&place, place.at("a.rs").to_str().unwrap()).await, "a.rs");
    let text = place.ok(&Glob, json!({"pattern": "*.rs", "path": "src"})).await;
    assert_eq!(text, "src/b.rs");
    let text = place.ok(&Glob, json!({"pattern": "*.rs", "path": "dist"})).await;
    assert_eq!(text, "dist/y.rs");
    assert!(place.err(&Glob, json!({"pattern": "{a"})).await.contains("not a valid glob"));
}

#[tokio::test]
async fn halo_is_searched_but_for_what_the_program_keeps_there() {
    let place = Place::new();
    for dir in ["sessions", "logs", "evo", "tmp", "assets", "canvas", "skills", "skills/tmp"] {
        place.put(&format!(".halo/{dir}/f"), "");
    }
    assert_eq!(find_in(&place, "**/f").await, ".halo/skills/f\n.halo/skills/tmp/f");
}

#[tokio::test]
async fn links_to_files_are_found_and_circles_end_and_nothing_is_opened() {
    let place = Place::new();
    place.put("sub/f", "");
    place.link("sub/f", "link");
    place.link("..", "sub/up");
    place.link("nowhere", "gone");
    place.fifo("fifo");
    assert_eq!(find_in(&place, "**").await, "link\nsub/f");
}

#[tokio::test]
async fn hidden_files_are_not_found_below_full() {
    let place = Place::with_access(AccessLevel::Workspace);
    place.put(".halo/halo.db", "");
    place.put(".halo/x", "");
    place.link(".halo/halo.db", "link");
    assert_eq!(find_in(&place, "**").await, ".halo/x");
}

#[tokio::test]
async fn a_large_tree_ends_at_5000_paths() {
    let place = Place::new();
    for dir in 0..100 {
        std::fs::create_dir(place.at(&format!("d{dir:03}"))).unwrap();
        for file in 0..100 {
            std::fs::File::create(place.at(&format!("d{dir:03}/f{file:03}"))).unwrap();
        }
    }
    let text = find_in(&place, "**").await;
    assert_eq!(text.lines().count(), 5001);
    assert!(text.ends_with("d049/f099\n[Ended at 5000 files: narrow the pattern or the path]"));
    assert_eq!(find_in(&place, "**/f099").await.lines().count(), 100);
}

#[tokio::test]
async fn a_stopped_session_finds_nothing() {
    let place = tree();
    place.context.cancel.cancel();
    assert_eq!(place.err(&Glob, json!({"pattern": "**"})).await, "stopped");
}
