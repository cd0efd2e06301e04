//! Small text files that people write: read whole, within bounds, without waiting for a pipe.

use crate::workspace::paths::{Guard, PathError};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest file that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// The file's text; `None` when there is no such file. A byte order mark is left out, and bytes that are no UTF-8
/// are replaced. A longer file, or anything but a plain file, is an error.
pub(super) fn read_text(path: &Path) -> io::Result<Option<String>> {
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"));
    }
    read_opened(file).map(Some)
}

/// The same for a file whose text goes to a session's model: nothing that the session may not read, whatever links
/// lead there.
pub(super) fn read_allowed(path: &Path, guard: &Guard) -> io::Result<Option<String>> {
    match guard.open_file(path) {
        Ok(opened) => read_opened(opened.file).map(Some),
        Err(PathError::NotFound(_) | PathError::NotFolder(_)) => Ok(None),
        Err(PathError::Hidden(_)) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "leads to what is hidden"))
        }
        Err(PathError::Folder(_) | PathError::NotRegular { .. }) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file"))
        }
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

fn read_opened(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB"));
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned())
}

/// The text between two lines `---`, of which the first begins the file, and what follows; `None` where there is no
/// such block.
pub(super) fn split_front_matter(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_plain_files_of_a_sane_length_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        assert_eq!(read_text(&file).unwrap(), None);
        assert!(read_text(folder.path()).is_err());
        fs::write(&file, b"\xef\xbb\xbfa\xffb").unwrap();
        assert_eq!(read_text(&file).unwrap().unwrap(), "a\u{fffd}b");
        assert_eq!(read_text(&file.join("below")).unwrap(), None);
        fs::write(&file, vec![b'x'; 1024 * 1024 + 1]).unwrap();
        assert!(read_text(&file).is_err());
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(read_text(&pipe).is_err());
    }
}
