//! Reading YAML within bounds that a thread's stack can take. A file that nests deeper than any of ours has to is
//! refused; the library alone would allow a depth at which the whole program ends.

use serde::Deserialize;
use serde_saphyr::{Error, Options};

/// The deepest nesting that is read. A level may cost 40 KiB of stack in a build without optimisation, and a thread
/// has 2 MiB.
const MAX_DEPTH: usize = 24;

/// One document as a value; duplicate keys and further documents are errors.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options())
}

/// The same for callers that need the library itself.
pub fn options() -> Options {
    serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: MAX_DEPTH } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::skill::Shelf;
    use crate::config::{Environment, Home, aliases};
    use crate::workspace::paths::Guard;
    use std::fs;
    use std::path::Path;

    fn nested(depth: usize) -> String {
        format!("x: {}1{}\n", "{a: ".repeat(depth), "}".repeat(depth))
    }

    #[test]
    fn what_nests_no_deeper_than_our_files_do_is_read_and_deeper_is_an_error() {
        assert!(from_str::<serde_json::Value>(&nested(20)).is_ok());
        for depth in [25, 64, 10_000] {
            for text in [nested(depth), nested(depth).replace('}', "")] {
                assert!(from_str::<serde_json::Value>(&text).is_err(), "{depth}");
            }
        }
    }

    #[test]
    fn files_that_people_write_may_nest_as_deep_as_they_like_and_end_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(&folder.path().join("home")), &Environment::default()).unwrap();
        home.prepare().unwrap();
        for depth in [60, 64, 10_000] {
            fs::write(home.aliases_yaml(), nested(depth)).unwrap();
            assert_eq!(aliases::check(&home).len(), 1);
            let skill = folder.path().join(".halo/skills/deep");
            fs::create_dir_all(&skill).unwrap();
            fs::write(skill.join("SKILL.md"), format!("---\n{}---\n", nested(depth))).unwrap();
            let shelf = Shelf {
                global: Path::new("/none"),
                workspace: folder.path(),
                guard: &Guard::inside(folder.path()),
                access: crate::access::AccessLevel::Full,
                disabled: &[],
            };
            assert!(shelf.find("deep").unwrap().broken.is_some());
        }
    }
}
