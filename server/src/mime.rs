//! File types by extension and back: for `file` frames, for served files, and for the names of saved ones. And the
//! images that models take, by their first bytes.

/// Extensions with their types. Of several rows with one extension, or one type, the first counts.
const TYPES: &[(&str, &str)] = &[
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("bmp", "image/bmp"),
    ("svg", "image/svg+xml"),
    ("ico", "image/x-icon"),
    ("avif", "image/avif"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("mp3", "audio/mpeg"),
    ("mp3", "audio/mp3"),
    ("wav", "audio/wav"),
    ("wav", "audio/x-wav"),
    ("wav", "audio/wave"),
    ("ogg", "audio/ogg"),
    ("oga", "audio/ogg"),
    ("opus", "audio/opus"),
    ("m4a", "audio/mp4"),
    ("m4a", "audio/x-m4a"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("amr", "audio/amr"),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("webm", "video/webm"),
    ("webm", "audio/webm"),
    ("mov", "video/quicktime"),
    ("ogv", "video/ogg"),
    ("mkv", "video/x-matroska"),
    ("avi", "video/x-msvideo"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("wasm", "application/wasm"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("xml", "text/xml"),
    ("xhtml", "application/xhtml+xml"),
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("js", "application/javascript"),
    ("md", "text/markdown; charset=utf-8"),
    ("markdown", "text/markdown; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("text", "text/plain; charset=utf-8"),
    ("log", "text/plain; charset=utf-8"),
    ("yaml", "text/plain; charset=utf-8"),
    ("yml", "text/plain; charset=utf-8"),
    ("toml", "text/plain; charset=utf-8"),
    ("ini", "text/plain; charset=utf-8"),
    ("jsonl", "text/plain; charset=utf-8"),
    ("diff", "text/plain; charset=utf-8"),
    ("patch", "text/plain; charset=utf-8"),
    ("rs", "text/plain; charset=utf-8"),
    ("py", "text/plain; charset=utf-8"),
    ("ts", "text/plain; charset=utf-8"),
    ("tsx", "text/plain; charset=utf-8"),
    ("jsx", "text/plain; charset=utf-8"),
    ("go", "text/plain; charset=utf-8"),
    ("c", "text/plain; charset=utf-8"),
    ("h", "text/plain; charset=utf-8"),
    ("cpp", "text/plain; charset=utf-8"),
    ("java", "text/plain; charset=utf-8"),
    ("sh", "text/plain; charset=utf-8"),
    ("sql", "text/plain; charset=utf-8"),
];

/// The type of a file by its name; `application/octet-stream` when the extension is unknown.
pub fn of(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let found = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension));
    found.map_or("application/octet-stream", |(_, kind)| kind)
}

/// The extension for a type, whatever its parameters (`audio/webm;codecs=opus`); `bin` when the type is unknown.
pub fn extension_of(mime_type: &str) -> &'static str {
    let wanted = essence(mime_type);
    let found = TYPES.iter().find(|(_, known)| essence(known).eq_ignore_ascii_case(wanted));
    found.map_or("bin", |(extension, _)| extension)
}

/// A type without its parameters.
pub fn essence(mime_type: &str) -> &str {
    mime_type.split(';').next().unwrap_or_default().trim()
}

/// The type of an image that models take, by its first bytes; `None` for anything else, whatever its name.
pub fn image_of(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[test]
    fn types_go_by_the_last_extension_whatever_its_case() {
        assert_eq!(super::of("a.tar.PNG"), "image/png");
        assert_eq!(super::of("a.webm"), "video/webm");
        assert_eq!(super::of("a.txt"), "text/plain; charset=utf-8");
        assert_eq!(super::of("png"), "application/octet-stream");
        assert_eq!(super::of("x.unknown"), "application/octet-stream");
        assert_eq!(super::of("x."), "application/octet-stream");
    }

    #[rstest]
    #[case("audio/webm;codecs=opus", "webm")]
    #[case(" Audio/MPEG ", "mp3")]
    #[case("text/plain", "txt")]
    #[case("text/html", "html")]
    #[case("image/svg+xml", "svg")]
    #[case("image/jpeg", "jpg")]
    #[case("application/x-unknown", "bin")]
    #[case("../../etc/passwd", "bin")]
    #[case("", "bin")]
    fn a_type_has_one_extension(#[case] mime_type: &str, #[case] extension: &str) {
        assert_eq!(super::extension_of(mime_type), extension);
    }

    #[rstest]
    #[case(b"\xff\xd8\xff\xe0", Some("image/jpeg"))]
    #[case(b"\x89PNG\r\n\x1a\n", Some("image/png"))]
    #[case(b"GIF87a", Some("image/gif"))]
    #[case(b"GIF89a...", Some("image/gif"))]
    #[case(b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp"))]
    #[case(b"RIFF\0\0\0\0WAVE", None)]
    #[case(b"GIF88a", None)]
    #[case(b"\x89PNG\n", None)]
    #[case(b"BM", None)]
    #[case(b"", None)]
    fn an_image_is_known_by_its_first_bytes(#[case] bytes: &[u8], #[case] mime_type: Option<&str>) {
        assert_eq!(super::image_of(bytes), mime_type);
    }
}
