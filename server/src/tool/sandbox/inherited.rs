//! Files that this process was started with and that it would pass on to every program: a sandboxed command must not
//! get them, since what is open already is beyond all mounts and rules.

use std::path::Path;
use std::sync::LazyLock;

const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// Numbers of files that are passed on, beside the usual three. They are there from the start: what this program opens
/// itself is never passed on.
static INHERITED: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let entries = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.filter(|number| *number > 2 && is_passed_on(*number)).collect();
    numbers.sort_unstable();
    numbers
});

fn is_passed_on(number: u32) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|f| f & CLOSE_ON_EXEC == 0)
}

/// Shell code that closes them, and the shell to run it with: `sh`, or this one for numbers above 9, which `sh` need
/// not take. The error says when there is no such shell.
pub fn closing(shell: &Path) -> Result<(String, &Path), String> {
    code(&INHERITED, shell)
}

fn code<'a>(numbers: &[u32], shell: &'a Path) -> Result<(String, &'a Path), String> {
    let lines: Vec<String> = numbers.iter().map(|number| format!("exec {number}>&-; ")).collect();
    let code = lines.concat();
    if numbers.iter().all(|number| *number <= 9) {
        return Ok((code, Path::new("/bin/sh")));
    }
    if shell.ends_with("bash") {
        return Ok((code, shell));
    }
    Err("the server was started with open files that only bash can close; install bash".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_inherited_is_closed_and_the_rest_of_the_command_runs() {
        let (code, shell) = code(&[7, 251], Path::new("/bin/bash")).unwrap();
        let outer =
            format!("exec 7</dev/null 251</dev/null; exec \"$0\" -c '{code} ls /proc/$$/fd; echo done'");
        let output = Command::new("bash").arg("-c").arg(outer).arg(shell).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.contains(&"done") && !lines.contains(&"7") && !lines.contains(&"251"), "{text}");
    }

    #[test]
    fn a_shell_that_cannot_close_them_is_an_error() {
        assert!(code(&[251], Path::new("/bin/sh")).is_err());
        assert_eq!(code(&[], Path::new("/bin/sh")).unwrap(), (String::new(), Path::new("/bin/sh")));
    }
}
