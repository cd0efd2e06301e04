//! Refuses `rm` and `rmdir` of what nobody means to delete: the root, the home, halo's home, the workspace, what
//! holds them, and the folders of the system. It reads the command line the way a shell would, roughly: a seat
//! belt against slips, not a wall. It does not look into `eval`, `bash -c` or scripts.

#[cfg(test)]
mod tests;
mod words;

use crate::workspace::paths::normalized;
use std::path::{Path, PathBuf};
use words::{Token, Word};

/// Folders of the system; these and what is directly in them stays.
const SYSTEM: [&str; 23] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/usr",
    "/var",
    "/Applications",
    "/Library",
    "/System",
    "/Users",
];
/// Folders whose content may go, but not they themselves.
const KEPT: [&str; 4] = ["/tmp", "/private/tmp", "/private", "/root"];
/// Words after which the command proper follows, each with its options that take a value.
const WRAPPERS: [(&str, &[&str]); 14] = [
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R"]),
    ("doas", &["-u", "-C"]),
    ("env", &["-u", "-C"]),
    ("xargs", &["-n", "-P", "-I", "-L", "-s", "-d", "-a", "-E"]),
    ("nohup", &[]),
    ("time", &["-f", "-o"]),
    ("command", &[]),
    ("builtin", &[]),
    ("exec", &["-a"]),
    ("setsid", &[]),
    ("nice", &["-n"]),
    ("ionice", &["-c", "-n"]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("timeout", &["-s", "-k"]),
];
/// Words of the shell after which a command follows.
const KEYWORDS: [&str; 10] = ["if", "then", "elif", "else", "while", "until", "do", "!", "{", "coproc"];

/// Checks command lines against the places that must stay.
pub struct RmGuard {
    workspace: PathBuf,
    home: PathBuf,
    /// Home, halo's home and the workspace.
    precious: Vec<PathBuf>,
}

impl RmGuard {
    /// A guard of these places; `workspace` is also where commands start.
    pub fn new(workspace: &Path, user_home: &Path, halo_home: &Path) -> Self {
        let places =
            [workspace.to_owned(), user_home.to_owned(), halo_home.to_owned(), user_home.join(".halo")];
        let mut precious = Vec::new();
        for place in places {
            precious.extend(place.canonicalize());
            precious.push(place);
        }
        Self { workspace: workspace.to_owned(), home: user_home.to_owned(), precious }
    }

    /// An error that names the word when the command would delete one of the places.
    pub fn check(&self, command: &str) -> Result<(), String> {
        let mut dir = self.workspace.clone();
        // What `)` returns to.
        let mut outer = Vec::new();
        let mut words = Vec::new();
        // `$PWD` is what it is when its word is reached, so the words are read one by one.
        let mut reader = words::Reader::new(command);
        loop {
            let token = reader.next(&self.home, &dir);
            if let Some(Token::Word(word)) = token {
                words.push(word);
                continue;
            }
            self.check_command(&words, &mut dir)?;
            words.clear();
            match token {
                Some(Token::Open) => outer.push(dir.clone()),
                Some(Token::Close) => dir = outer.pop().unwrap_or(dir),
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    /// Checks one simple command; a `cd` changes `dir`.
    fn check_command(&self, words: &[Word], dir: &mut PathBuf) -> Result<(), String> {
        let Some((name, arguments)) = command_proper(words) else { return Ok(()) };
        match name {
            "cd" | "pushd" => {
                let target =
                    arguments.iter().map(|word| word.text.as_str()).find(|word| !word.starts_with('-'));
                *dir = match target {
                    None | Some("") => self.home.clone(),
                    Some(target) => normalized(&dir.join(target)),
                };
                Ok(())
            }
            "rm" | "rmdir" => {
                let mut options = true;
                for word in arguments {
                    if options && word.text.starts_with('-') {
                        options = word.text != "--";
                    } else if !word.text.is_empty() {
                        self.check_target(word, dir)?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_target(&self, word: &Word, dir: &Path) -> Result<(), String> {
        let path = dir.join(&word.text);
        let all = path.file_name().is_some_and(|name| name == "*" || name == ".*" || name == "**");
        let meant = if all { path.parent().unwrap_or(&path) } else { &path };
        let plain = normalized(meant);
        // A link itself may go. What is behind it is meant with a slash at the end or a star.
        let real = match meant.file_name().zip(meant.parent()) {
            Some((name, parent)) if !all && !word.text.ends_with('/') => {
                parent.canonicalize().ok().map(|parent| parent.join(name))
            }
            _ => meant.canonicalize().ok(),
        };
        for target in [Some(plain), real].into_iter().flatten() {
            if self.must_stay(&target) {
                return Err(format!(
                    "[Sandbox] rm blocked: \"{}\" resolves to {}; name the files below it that are meant",
                    word.raw,
                    target.display()
                ));
            }
        }
        Ok(())
    }

    fn must_stay(&self, target: &Path) -> bool {
        target == Path::new("/")
            || self.precious.iter().any(|place| place.starts_with(target))
            || KEPT.iter().any(|kept| target == Path::new(kept))
            || SYSTEM.iter().any(|system| {
                let system = Path::new(system);
                target == system || target.parent() == Some(system)
            })
    }
}

/// The name of the command behind keywords, assignments and wrappers, and its arguments.
fn command_proper(words: &[Word]) -> Option<(&str, &[Word])> {
    let mut rest = words;
    loop {
        let (first, after) = rest.split_first()?;
        rest = after;
        let name = first.text.rsplit('/').next().unwrap_or_default();
        if is_assignment(&first.raw) || KEYWORDS.contains(&name) {
            continue;
        }
        let Some((_, with_value)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == name) else {
            return Some((name, rest));
        };
        while let Some((option, after)) = rest.split_first() {
            if !option.text.starts_with('-') {
                break;
            }
            rest = if with_value.contains(&option.text.as_str()) { after.get(1..)? } else { after };
        }
        if name == "timeout" {
            // Its first argument is the time.
            rest = rest.get(1..)?;
        }
    }
}

/// `NAME=value` and `NAME+=value`.
fn is_assignment(raw: &str) -> bool {
    raw.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.chars().all(|part| part.is_ascii_alphanumeric() || part == '_')
    })
}
