//! Archived parts of a log: `<leaf>.arch.<N>.json.gz` beside the session's file, gzip of an array of rows, the oldest
//! part first.

use super::session_file::text_of;
use flate2::read::MultiGzDecoder;
use serde_json::value::RawValue;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file of the part `number` of the session whose file this is.
pub fn path_of(session_file: &Path, number: u64) -> PathBuf {
    let mut name = session_file.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".arch.{number}.json.gz"));
    session_file.with_file_name(name)
}

/// The unpacked text of a part.
pub fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    text_of(MultiGzDecoder::new(file))
}

/// The rows of a part.
pub fn parse(text: &str) -> Result<Vec<&RawValue>, String> {
    serde_json::from_str(text).map_err(|error| format!("broken: {error}"))
}
