//! Media that come in with a message and that no model takes as they are: saved below
//! `.halo/assets/<channel>/inbound/<account>/<day>/` for the tools, and named to model and people by a line of text.
//! They are on disk before the message is, and go again unless the message is stored. Nothing is written outside
//! the workspace, wherever links in `.halo` lead.

use super::paths::replace::Created;
use super::paths::{Guard, PathError};
use super::scaffold;
use crate::{clock, mime};
use std::path::Path;

/// Names that are tried for one file before giving up.
const TRIES: usize = 4;

/// A file as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// What the sender calls it; nobody has checked.
    pub mime_type: String,
    /// Its content. How much may come is the surface's business.
    pub bytes: Vec<u8>,
}

/// Files that were saved for a message: removed when this is dropped, unless the message is stored.
#[derive(Debug, Default)]
pub struct Saved(Vec<Created>);

impl Saved {
    /// The message that names the files is on disk: they stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        for file in &self.0 {
            if let Err(error) = file.remove() {
                tracing::warn!(%error, "a file of a message that was refused is left over");
            }
        }
    }
}

/// Saves all of `media` or nothing; gives the files and the lines that name them, in their order. `now_ms` is the
/// time that they carry, in UTC. For blocking threads.
pub fn save(
    workspace: &Path,
    channel: &str,
    account_id: &str,
    media: &[Media],
    now_ms: i64,
) -> Result<(Saved, Vec<String>), PathError> {
    let guard = Guard::inside(workspace);
    let now = clock::iso(now_ms);
    let (day, time) = (&now[..10], now[11..19].replace(':', ""));
    let folder = scaffold::folder(guard.workspace())
        .join("assets")
        .join(channel)
        .join("inbound")
        .join(account_id)
        .join(day);
    let mut saved = Saved::default();
    let mut lines = Vec::with_capacity(media.len());
    for one in media {
        let (kind, word) = kind_of(&one.mime_type);
        let extension = mime::extension_of(&one.mime_type);
        let mut tries = 0;
        loop {
            tries += 1;
            let name = format!("{kind}_{time}_{:06x}.{extension}", rand::random::<u32>() >> 8);
            let path = folder.join(name);
            match guard.write_target(&path)?.create_private(&one.bytes) {
                Ok(created) => saved.0.push(created),
                // The name is taken.
                Err(PathError::Changed(_)) if tries < TRIES => continue,
                Err(error) => return Err(error),
            }
            lines.push(format!("[{word}已保存: {}]", path.display()));
            break;
        }
    }
    Ok((saved, lines))
}

/// What a file is called in its name, and in the line about it.
fn kind_of(mime_type: &str) -> (&'static str, &'static str) {
    let family = mime::essence(mime_type).split('/').next().unwrap_or_default().to_ascii_lowercase();
    match family.as_str() {
        "image" => ("image", "图片"),
        "audio" => ("voice", "语音"),
        "video" => ("video", "视频"),
        _ => ("file", "文件"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// 2026-12-01T18:10:54.321Z
    const NOW: i64 = 1_796_148_654_321;

    struct Place {
        dir: TempDir,
        workspace: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let workspace = dir.path().canonicalize().unwrap().join("ws");
            fs::create_dir(&workspace).unwrap();
            scaffold::make(&workspace).unwrap();
            Self { dir, workspace }
        }

        fn save(&self, types: &[&str]) -> Result<(Saved, Vec<String>), PathError> {
            let media: Vec<Media> = types
                .iter()
                .map(|kind| Media { mime_type: (*kind).into(), bytes: b"sound".into() })
                .collect();
            save(&self.workspace, "web", "a1b2c3d4", &media, NOW)
        }

        fn folder(&self) -> PathBuf {
            self.workspace.join(".halo/assets/web/inbound/a1b2c3d4/2026-12-01")
        }

        fn left(&self) -> usize {
            fs::read_dir(self.folder()).map_or(0, Iterator::count)
        }
    }

    fn path_in(line: &str) -> &str {
        line.split_once(": ").unwrap().1.strip_suffix(']').unwrap()
    }

    #[rstest]
    #[case("audio/webm", "语音", "voice_181054_", ".webm")]
    #[case("Audio/Ogg; codecs=opus", "语音", "voice_181054_", ".ogg")]
    #[case("video/mp4", "视频", "video_181054_", ".mp4")]
    #[case("image/svg+xml", "图片", "image_181054_", ".svg")]
    #[case("application/pdf", "文件", "file_181054_", ".pdf")]
    #[case("../../x", "文件", "file_181054_", ".bin")]
    #[case("", "文件", "file_181054_", ".bin")]
    fn a_file_is_saved_for_its_owner_and_named_by_its_kind(
        #[case] mime_type: &str,
        #[case] word: &str,
        #[case] start: &str,
        #[case] end: &str,
    ) {
        let place = Place::new();
        let (saved, lines) = place.save(&[mime_type]).unwrap();
        saved.keep();
        assert!(lines[0].starts_with(&format!("[{word}已保存: /")), "{lines:?}");
        let path = Path::new(path_in(&lines[0]));
        assert_eq!(path.parent().unwrap(), place.folder());
        let name = path.file_name().unwrap().to_str().unwrap();
        let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap();
        assert!(middle.len() == 6 && middle.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        assert_eq!(fs::read(path).unwrap(), b"sound");
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_not_kept_goes_again() {
        let place = Place::new();
        let (saved, lines) = place.save(&["audio/webm", "video/mp4"]).unwrap();
        assert_eq!((lines.len(), place.left()), (2, 2));
        drop(saved);
        assert_eq!(place.left(), 0);
    }

    #[rstest]
    #[case(".halo/assets")]
    #[case(".halo/assets/web/inbound")]
    #[case(".halo/assets/web/inbound/a1b2c3d4/2026-12-01")]
    fn a_link_out_of_the_workspace_is_refused(#[case] link: &str) {
        let place = Place::new();
        let outside = place.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let link = place.workspace.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&outside, link).unwrap();
        assert!(matches!(place.save(&["audio/webm"]), Err(PathError::Outside { .. })));
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }

    #[test]
    fn a_link_to_where_halo_keeps_its_own_is_refused() {
        let place = Place::new();
        symlink("logs", place.workspace.join(".halo/assets")).unwrap();
        assert!(matches!(place.save(&["audio/webm"]), Err(PathError::Hidden(_))));
        assert_eq!(fs::read_dir(place.workspace.join(".halo/logs")).unwrap().count(), 0);
    }

    #[test]
    fn what_stands_in_the_way_is_an_error_and_stays() {
        let place = Place::new();
        fs::create_dir_all(place.workspace.join(".halo/assets/web/inbound")).unwrap();
        let file = place.workspace.join(".halo/assets/web/inbound/a1b2c3d4");
        fs::write(&file, "in the way").unwrap();
        assert!(matches!(place.save(&["audio/webm"]), Err(PathError::NotFolder(_))));
        assert_eq!(fs::read(file).unwrap(), b"in the way");
    }
}
