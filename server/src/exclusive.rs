//! The exclusive lock on a file that tells who runs something. The operating system frees it when its holder ends,
//! with one gap: a child that was just being started when its parent was killed shares the descriptor until it
//! becomes another program, some milliseconds later.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);
/// Tries while the holder is dead: 2 s in all.
const TRIES_AFTER_DEATH: u32 = 400;

/// Takes the lock; false when another process has it. A holder that lives is given `tries` tries, 5 ms apart; one
/// that the file names and that is dead up to 2 s. Blocks.
pub fn take(file: &File, tries: u32, holder: impl Fn() -> Option<i32>) -> io::Result<bool> {
    let mut tried = 0;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        tried += 1;
        let limit = if holder().is_some_and(is_dead) { tries.max(TRIES_AFTER_DEATH) } else { tries };
        if tried >= limit {
            return Ok(false);
        }
        thread::sleep(PAUSE);
    }
}

/// No process has this id any more. One that we may not ask lives; what is no id at all is nobody's.
fn is_dead(pid: i32) -> bool {
    let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_is_no_process_id_is_nobodys() {
        assert!(!is_dead(-1) && !is_dead(0) && !is_dead(i32::MIN));
    }

    #[test]
    fn a_holder_that_lives_keeps_it_and_one_that_died_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = File::create(&path).unwrap();
        assert!(take(&first, 1, || None).unwrap());
        let second = File::open(&path).unwrap();
        assert!(!take(&second, 3, || Some(std::process::id() as i32)).unwrap());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id() as i32;
        child.wait().unwrap();
        let began = Instant::now();
        let releasing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(first);
        });
        assert!(take(&second, 1, || Some(dead)).unwrap());
        assert!(began.elapsed() >= Duration::from_millis(40));
        releasing.join().unwrap();
    }
}
