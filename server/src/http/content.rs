//! An open file as an answer: name and type, conditional requests (RFC 9110, section 13), one byte range
//! (section 14), and a body that is read piece by piece as the client takes it. Which file may be opened is
//! decided before, by the path guard.

use super::error::ApiError;
use crate::mime;
use crate::workspace::paths::OpenedFile;
use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED,
    RANGE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, Take};

/// The most that is read of a file before the client has taken it: bytes.
const CHUNK: usize = 64 * 1024;
/// Seconds since the epoch up to which a date has four digits for its year, as the header wants it.
const LAST_DATE: i64 = 253_402_300_799;
/// What a parameter of RFC 8187 may hold as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The answer to a GET or HEAD that asks for this file under this name: 200, 206 or 304; 416 as an error. Several
/// ranges at once, and a range that cannot be read, are answered with the whole file. The file must not have been
/// read from yet.
pub fn answer(
    opened: OpenedFile,
    name: &str,
    method: &Method,
    asked: &HeaderMap,
) -> Result<Response, ApiError> {
    let state = State::of(&opened.metadata);
    if state.is_known(asked) {
        return Ok((StatusCode::NOT_MODIFIED, state.headers()).into_response());
    }
    let size = opened.metadata.len();
    let part = if method == Method::GET { state.part(asked, size)? } else { None };
    let (from, length) = part.unwrap_or((0, size));
    let mut headers = state.headers();
    let kind = mime::of(name);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_DISPOSITION, text(&disposition(name)));
    if runs_in_a_browser(kind) {
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
    let status = if part.is_some() {
        headers.insert(CONTENT_RANGE, text(&format!("bytes {from}-{}/{size}", from + length - 1)));
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let body = Body::from_stream(pieces(opened.file, from, length).map_err(ApiError::internal)?);
    Ok((status, headers, body).into_response())
}

/// The state of a file, as clients remember it.
struct State {
    etag: String,
    /// Seconds since the epoch, where a header can hold them.
    modified: Option<u64>,
}

impl State {
    fn of(file: &Metadata) -> Self {
        let (seconds, nanos) = (file.mtime(), file.mtime_nsec());
        Self {
            etag: format!("\"{:x}-{:x}-{:x}-{seconds:x}.{nanos:x}\"", file.dev(), file.ino(), file.size()),
            modified: (0..=LAST_DATE).contains(&seconds).then_some(seconds as u64),
        }
    }

    fn last_modified(&self) -> Option<String> {
        self.modified.map(|seconds| httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)))
    }

    /// What a client needs to ask again. A file may be another one at any time, and is for one token's eyes.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, text(&self.etag));
        if let Some(date) = self.last_modified() {
            headers.insert(LAST_MODIFIED, text(&date));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers
    }

    /// Whether the client has this state already. Of the two conditions the entity tag counts, where it is there.
    fn is_known(&self, asked: &HeaderMap) -> bool {
        if asked.contains_key(IF_NONE_MATCH) {
            let listed = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
            return listed.flat_map(|list| list.split(',')).map(str::trim).any(|tag| {
                // Tags are compared weakly here: compression makes ours weak.
                tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == self.etag
            });
        }
        let since = value(asked, &IF_MODIFIED_SINCE).and_then(|date| httpdate::parse_http_date(date).ok());
        let since = since.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        since.zip(self.modified).is_some_and(|(since, modified)| modified <= since.as_secs())
    }

    /// Start and length of the part that is wanted; `None` for the whole file.
    fn part(&self, asked: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, ApiError> {
        let Some(range) = value(asked, &RANGE) else { return Ok(None) };
        if let Some(state) = asked.get(IF_RANGE)
            && state.as_bytes() != self.etag.as_bytes()
            && self.last_modified().is_none_or(|date| state.as_bytes() != date.as_bytes())
        {
            // The client has a part of another state.
            return Ok(None);
        }
        let Ok(ranges) = http_range_header::parse_range_header(range) else { return Ok(None) };
        if ranges.len() != 1 {
            return Ok(None);
        }
        let valid = ranges.validate(size).map_err(|_| ApiError::RangeNotSatisfiable { size })?;
        Ok(valid.first().map(|range| (*range.start(), range.end() - range.start() + 1)))
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Only for text that holds nothing but visible ASCII and blanks.
fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Shown in place, with a name for those who save it: one for old clients, and the true one.
fn disposition(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\' | '%') { c } else { '_' })
        .collect();
    format!("inline; filename=\"{plain}\"; filename*=UTF-8''{}", utf8_percent_encode(name, PLAIN))
}

/// Types whose scripts would run with the rights of our own pages.
fn runs_in_a_browser(kind: &str) -> bool {
    let kind = mime::essence(kind);
    kind == "text/html" || kind.ends_with("/xml") || kind.ends_with("+xml")
}

/// The bytes of a part. A file that has become shorter meanwhile breaks the answer off: one that looks whole would
/// lie.
fn pieces(
    mut file: File,
    from: u64,
    length: u64,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    file.seek(SeekFrom::Start(from))?;
    let mut rest: Take<tokio::fs::File> = tokio::fs::File::from_std(file).take(length);
    Ok(async_stream::try_stream! {
        while rest.limit() > 0 {
            let mut piece = BytesMut::with_capacity(CHUNK);
            if rest.read_buf(&mut piece).await? == 0 {
                Err(io::Error::from(io::ErrorKind::UnexpectedEof))?;
            }
            yield piece.freeze();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::hidden::HiddenSet;
    use crate::workspace::paths::open_beneath;
    use futures_util::TryStreamExt;
    use http_body_util::BodyExt;
    use rstest::rstest;
    use std::time::SystemTime;
    use tempfile::TempDir;

    /// 2026-12-01T18:06:13.5Z
    const AT: Duration = Duration::from_millis(1_796_148_373_500);
    const DATE: &str = "Tue, 01 Dec 2026 18:06:13 GMT";

    struct Place(TempDir);

    impl Place {
        fn new(content: &[u8]) -> Self {
            Self::at(content, UNIX_EPOCH + AT)
        }

        fn at(content: &[u8], modified: SystemTime) -> Self {
            let place = Self(TempDir::new().unwrap());
            std::fs::write(place.0.path().join("f"), content).unwrap();
            let file = File::options().write(true).open(place.0.path().join("f")).unwrap();
            file.set_modified(modified).unwrap();
            place
        }

        fn ask(&self, method: &Method, headers: &[(&str, &str)]) -> Result<Response, ApiError> {
            let mut asked = HeaderMap::new();
            for (name, value) in headers {
                asked.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            answer(open_beneath(self.0.path(), "f", &HiddenSet::default()).unwrap(), "f.txt", method, &asked)
        }

        fn etag(&self) -> String {
            self.ask(&Method::GET, &[]).unwrap().headers()["etag"].to_str().unwrap().to_owned()
        }
    }

    async fn body(response: Response) -> Vec<u8> {
        response.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_file_comes_whole_with_all_that_a_client_needs_to_ask_again() {
        let place = Place::new(b"0123456789");
        let response = place.ask(&Method::GET, &[]).unwrap();
        assert_eq!(response.status(), 200);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
        assert_eq!(headers["content-length"], "10");
        assert_eq!(headers["accept-ranges"], "bytes");
        assert_eq!(headers["last-modified"], DATE);
        assert_eq!(headers["cache-control"], "private, no-cache");
        assert!(headers["etag"].to_str().unwrap().starts_with('"'));
        assert!(!headers.contains_key("content-range") && !headers.contains_key("content-security-policy"));
        assert_eq!(body(response).await, b"0123456789");
    }

    #[rstest]
    #[case("bytes=0-3", 206, "bytes 0-3/10", b"0123")]
    #[case("bytes=4-", 206, "bytes 4-9/10", b"456789")]
    #[case("bytes=-3", 206, "bytes 7-9/10", b"789")]
    #[case("bytes=-99", 206, "bytes 0-9/10", b"0123456789")]
    #[case("bytes=9-99999999999999999999", 206, "bytes 9-9/10", b"9")]
    #[case("bytes=0-3, 5-6", 200, "", b"0123456789")]
    #[case("bytes=3-1", 200, "", b"0123456789")]
    #[case("bytes=x", 200, "", b"0123456789")]
    #[case("lines=0-3", 200, "", b"0123456789")]
    #[tokio::test]
    async fn one_range_is_served_and_anything_odd_is_the_whole_file(
        #[case] range: &str,
        #[case] status: u16,
        #[case] content_range: &str,
        #[case] expected: &[u8],
    ) {
        let response = Place::new(b"0123456789").ask(&Method::GET, &[("range", range)]).unwrap();
        assert_eq!(response.status(), status);
        let said = response.headers().get("content-range").map_or("", |value| value.to_str().unwrap());
        assert_eq!(said, content_range);
        assert_eq!(response.headers()["content-length"], expected.len().to_string());
        assert_eq!(body(response).await, expected);
    }

    #[rstest]
    #[case(b"0123456789", "bytes=10-")]
    #[case(b"0123456789", "bytes=99-100")]
    #[case(b"0123456789", "bytes=-0")]
    #[case(b"", "bytes=0-")]
    fn a_range_behind_the_end_is_refused_with_the_size(#[case] content: &[u8], #[case] range: &str) {
        let size = content.len() as u64;
        let refused = Place::new(content).ask(&Method::GET, &[("range", range)]).unwrap_err();
        assert_eq!(refused, ApiError::RangeNotSatisfiable { size });
        let response = refused.into_response();
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()["content-range"], format!("bytes */{size}"));
    }

    #[tokio::test]
    async fn a_head_and_an_empty_file_have_no_part() {
        let place = Place::new(b"0123456789");
        let head = place.ask(&Method::HEAD, &[("range", "bytes=0-3")]).unwrap();
        assert_eq!(
            (head.status().as_u16(), &head.headers()["content-length"]),
            (200, &"10".parse().unwrap())
        );
        let empty = Place::new(b"").ask(&Method::GET, &[("range", "bytes=-5")]).unwrap();
        assert_eq!(empty.status(), 200);
        assert_eq!(body(empty).await, b"");
    }

    #[test]
    fn a_part_is_only_sent_of_the_state_that_the_client_has() {
        let place = Place::new(b"0123456789");
        let etag = place.etag();
        let weak = format!("W/{etag}");
        for (state, status) in [
            (etag.as_str(), 206),
            (DATE, 206),
            (weak.as_str(), 200),
            ("\"other\"", 200),
            ("Tue, 01 Dec 2026 18:06:14 GMT", 200),
        ] {
            let asked = [("range", "bytes=0-3"), ("if-range", state)];
            assert_eq!(place.ask(&Method::GET, &asked).unwrap().status(), status, "{state}");
        }
    }

    #[tokio::test]
    async fn what_the_client_has_is_not_sent_again() {
        let place = Place::new(b"text");
        let etag = place.etag();
        let (weak, among) = (format!("W/{etag}"), format!("\"a\", {etag}"));
        let early = "Tue, 01 Dec 2026 18:06:12 GMT";
        for (asked, status) in [
            (vec![("if-none-match", etag.as_str())], 304),
            (vec![("if-none-match", weak.as_str())], 304),
            (vec![("if-none-match", among.as_str())], 304),
            (vec![("if-none-match", "\"a\""), ("if-none-match", etag.as_str())], 304),
            (vec![("if-none-match", "*")], 304),
            (vec![("if-none-match", "\"other\"")], 200),
            (vec![("if-none-match", "\"other\""), ("if-modified-since", DATE)], 200),
            (vec![("if-none-match", etag.as_str()), ("if-modified-since", early)], 304),
            (vec![("if-modified-since", DATE)], 304),
            (vec![("if-modified-since", early)], 200),
            (vec![("if-modified-since", "yesterday")], 200),
        ] {
            let response = place.ask(&Method::GET, &asked).unwrap();
            assert_eq!(response.status(), status, "{asked:?}");
            if status == 304 {
                assert_eq!(response.headers()["etag"], etag);
                assert!(body(response).await.is_empty());
            }
        }
    }

    #[test]
    fn another_content_is_another_state() {
        let place = Place::new(b"text");
        let before = place.etag();
        std::fs::write(place.0.path().join("f"), "next").unwrap();
        assert_ne!(place.etag(), before);
    }

    #[test]
    fn a_date_that_no_header_can_hold_is_left_out() {
        let place = Place::at(b"old", UNIX_EPOCH - Duration::from_secs(5));
        let response = place.ask(&Method::GET, &[("if-modified-since", DATE)]).unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("last-modified"));
    }

    #[rstest]
    #[case("hello.txt", "inline; filename=\"hello.txt\"; filename*=UTF-8''hello.txt")]
    #[case("a b.txt", "inline; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt")]
    #[case("Übung.txt", "inline; filename=\"_bung.txt\"; filename*=UTF-8''%C3%9Cbung.txt")]
    #[case(
        "a\";x=\\\r\n.txt",
        "inline; filename=\"a_;x=___.txt\"; filename*=UTF-8''a%22%3Bx%3D%5C%0D%0A.txt"
    )]
    #[case("100%41'*.md", "inline; filename=\"100_41'*.md\"; filename*=UTF-8''100%2541%27%2A.md")]
    fn a_name_cannot_leave_its_place_in_the_header(#[case] name: &str, #[case] expected: &str) {
        assert_eq!(disposition(name), expected);
        assert_eq!(text(&disposition(name)), expected);
    }

    #[rstest]
    #[case("a.html", true)]
    #[case("a.HTM", true)]
    #[case("a.svg", true)]
    #[case("a.xml", true)]
    #[case("a.xhtml", true)]
    #[case("a.txt", false)]
    #[case("a.png", false)]
    #[case("a.docx", false)]
    #[case("a", false)]
    fn what_could_run_scripts_is_put_in_a_sandbox(#[case] name: &str, #[case] sandboxed: bool) {
        let place = Place::new(b"x");
        let opened = open_beneath(place.0.path(), "f", &HiddenSet::default()).unwrap();
        let response = answer(opened, name, &Method::GET, &HeaderMap::new()).unwrap();
        let policy = response.headers().get("content-security-policy");
        assert_eq!(policy.map(HeaderValue::as_bytes), sandboxed.then_some(b"sandbox".as_slice()));
    }

    #[tokio::test]
    async fn a_large_file_is_read_as_it_is_taken() {
        let place = Place::new(&vec![7; 10 * CHUNK]);
        let response = place.ask(&Method::GET, &[]).unwrap();
        let mut body = response.into_body().into_data_stream();
        assert!(body.try_next().await.unwrap().unwrap().len() <= CHUNK);
        // What was not read yet is what the disk has now.
        File::options().write(true).open(place.0.path().join("f")).unwrap().set_len(CHUNK as u64).unwrap();
        let rest: Result<Vec<Bytes>, _> = body.try_collect().await;
        assert!(rest.is_err(), "an answer that was cut must not look whole");
    }
}
