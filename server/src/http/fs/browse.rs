//! `GET /api/fs/browse`: the folders in a folder, for picking one; with `files=1` its files too, for the file
//! browser. Sorted by name (by its bytes), folders before files, so that pages follow on one another; a page costs
//! one pass over the folder and the memory of one page, however many entries there are.

use super::{Named, blocking, names};
use crate::http::AppState;
use crate::http::admin::AdminCookie;
use crate::http::admin::error::AdminError;
use crate::http::error::ApiError;
use crate::http::web::request::Query;
use crate::workspace::hidden::HiddenSet;
use crate::workspace::paths::found::{Folder, Found};
use crate::workspace::paths::{Kind, PathError, normalized};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::collections::BinaryHeap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many entries come at once when no `limit` is given, and the largest limit.
const PAGE: usize = 10_000;
/// What nobody looks for in a file browser.
const SKIPPED: [&str; 4] = [".git", ".DS_Store", "node_modules", "__pycache__"];
/// What is tried, in the words that clients know.
const CALL: &str = "scandir";

/// A page of a folder.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    path: String,
    parent: String,
    entries: Vec<Entry>,
    /// Only where pages were asked for, or are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more: Option<bool>,
    /// The `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    path: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

/// Lists; without a path the person's home.
pub async fn browse(
    State(state): State<AppState>,
    _: AdminCookie,
    query: Query,
) -> Result<Json<Page>, ApiError> {
    let places = (state.settings)().hidden;
    let with_files = query.get("files") == Some("1");
    let named = if with_files {
        Named::plain(&query)?
    } else if query.get("path").is_none() {
        Named { text: names::text_of(places.user_home.as_os_str()), path: places.user_home.clone() }
    } else {
        Named::absolute(&query).ok_or(AdminError::AbsolutePathRequired)?
    };
    let asked = Asked {
        with_files,
        with_sizes: with_files && query.get("sizes") == Some("1"),
        limit: query.get("limit").map(limit).transpose()?,
        after: query.get("after").map(str::to_owned),
    };
    blocking(move || {
        let hidden = if with_files { places.browsed() } else { HiddenSet::default() };
        let plain = Named { path: normalized(&named.path), ..named };
        let found = plain.open(&hidden, CALL)?;
        if found.kind() != Kind::Folder {
            return Err(AdminError::NotListable { call: CALL, path: plain.text }.into());
        }
        list(found, &plain.path, &asked, &hidden).map(Json).map_err(|error| plain.refusal(error, CALL))
    })
    .await
}

fn limit(text: &str) -> Result<usize, ApiError> {
    let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| is_number && (1..=PAGE).contains(limit));
    limit.ok_or(ApiError::InvalidLimit)
}

struct Asked {
    with_files: bool,
    with_sizes: bool,
    limit: Option<usize>,
    after: Option<String>,
}

/// The order of entries: folders, then files, each by the bytes of the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    is_file: bool,
    name: OsString,
}

impl Key {
    fn of(kind: Kind, name: OsString) -> Option<Self> {
        match kind {
            Kind::Folder => Some(Self { is_file: false, name }),
            Kind::File => Some(Self { is_file: true, name }),
            Kind::Other(_) => None,
        }
    }

    fn kind(&self) -> &'static str {
        if self.is_file { "file" } else { "directory" }
    }

    /// The text by which the next page starts after this entry. A name holds no slash.
    fn cursor(&self) -> String {
        format!("{}/{}", self.kind(), names::text_of(&self.name))
    }
}

/// Where a page starts: after the entry of a cursor, or after the entry that a client names by its name or path.
fn start(after: &str, folder: &Folder, hidden: &HiddenSet) -> Key {
    for (prefix, is_file) in [("directory/", false), ("file/", true)] {
        if let Some(name) = after.strip_prefix(prefix) {
            return Key { is_file, name: names::path_of(name).into_os_string() };
        }
    }
    let path = names::path_of(after);
    let name = path.file_name().unwrap_or_default().to_owned();
    // One that is gone counts as a folder: the client then sees some entries again, and misses none.
    let is_file = folder.look(&name, hidden).is_some_and(|(kind, _)| kind == Kind::File);
    Key { is_file, name }
}

fn list(found: Found, path: &Path, asked: &Asked, hidden: &HiddenSet) -> Result<Page, PathError> {
    let mut folder = found.into_folder()?;
    let after = asked.after.as_ref().map(|after| start(after, &folder, hidden));
    let limit = asked.limit.unwrap_or(PAGE);
    let may_hide = folder.may_hide(hidden);
    // The smallest keys so far, the largest of them on top.
    let mut page: BinaryHeap<Key> = BinaryHeap::new();
    let mut has_more = false;
    while let Some(entry) = folder.next_entry() {
        let (name, kind) = entry?;
        if is_skipped(&name, asked.with_files) {
            continue;
        }
        let kind = match kind {
            Some(_) if may_hide && folder.hides_name(&name, hidden) => None,
            Some(kind) => Some(kind),
            None => folder.look(&name, hidden).map(|(kind, _)| kind),
        };
        let Some(key) = kind.and_then(|kind| Key::of(kind, name)) else { continue };
        if key.is_file && !asked.with_files || after.as_ref().is_some_and(|after| key <= *after) {
            continue;
        }
        page.push(key);
        if page.len() > limit {
            page.pop();
            has_more = true;
        }
    }
    let keys = page.into_sorted_vec();
    let is_paged = has_more || asked.limit.is_some() || asked.after.is_some();
    let next = if has_more { keys.last().map(Key::cursor) } else { None };
    let entries = keys.into_iter().filter_map(|key| shown(&key, &folder, path, asked, hidden)).collect();
    Ok(Page {
        path: names::text_of(path.as_os_str()),
        parent: names::text_of(path.parent().unwrap_or(path).as_os_str()),
        entries,
        has_more: is_paged.then_some(has_more),
        next,
    })
}

fn is_skipped(name: &OsStr, with_files: bool) -> bool {
    if with_files {
        SKIPPED.iter().any(|skipped| name == *skipped)
    } else {
        name.as_bytes().starts_with(b".")
    }
}

/// The entry; none for a file that is another name of a hidden one, or that has gone meanwhile.
fn shown(key: &Key, folder: &Folder, path: &Path, asked: &Asked, hidden: &HiddenSet) -> Option<Entry> {
    let size = if key.is_file { Some(folder.look(&key.name, hidden)?.1) } else { None };
    Some(Entry {
        name: names::text_of(&key.name),
        path: names::text_of(path.join(&key.name).as_os_str()),
        kind: asked.with_files.then(|| key.kind()),
        size: size.filter(|_| asked.with_sizes),
    })
}
