//! Writes happen in one step, and leave nothing of themselves behind.

use super::*;
use std::fs::{File, FileTimes};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

#[test]
fn a_reader_sees_the_old_file_or_the_new_one_never_a_part() {
    let place = Place::new();
    let contents = ["a".repeat(70_000), "b".repeat(90_000)];
    let path = place.put("f", &contents[0]);
    let done = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) {
                let seen = std::fs::read(&path).unwrap();
                assert!(contents.iter().any(|content| content.as_bytes() == seen), "{} bytes", seen.len());
                reads += 1;
            }
            reads
        });
        let writer = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            for number in 1..=1000 {
                let content = &contents[number % 2];
                runtime.block_on(place.ok(&FileWrite, json!({"path": "f", "content": content})));
            }
            done.store(true, Ordering::Relaxed);
        };
        scope.spawn(writer);
        reader.join().unwrap()
    });
    assert!(reads > 0);
    assert_eq!(place.names(""), ["f"]);
}

#[tokio::test]
async fn what_a_crash_has_left_is_cleared_away_by_a_later_write_into_the_folder() {
    let place = Place::new();
    let old = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    for name in [
        ".halo-0123456789abcdef.tmp",
        ".halo-0123456789ABCDEF.tmp",
        ".halo-1.tmp",
        ".halo-0123456789abcdee.tmp",
    ] {
        place.put(name, "");
    }
    for name in [".halo-0123456789abcdef.tmp", ".halo-0123456789ABCDEF.tmp", ".halo-1.tmp"] {
        File::options().write(true).open(place.at(name)).unwrap().set_times(old).unwrap();
    }
    place.ok(&FileWrite, json!({"path": "f", "content": "x"})).await;
    assert_eq!(
        place.names(""),
        [".halo-0123456789ABCDEF.tmp", ".halo-0123456789abcdee.tmp", ".halo-1.tmp", "f"],
        "only what has a name of ours, and that nobody has written for an hour"
    );
}
