use super::super::testing::Place;
use super::*;
use crate::access::AccessLevel;
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};
use proptest::prelude::*;
use rstest::rstest;
use std::io::Cursor;
use tokio_util::sync::CancellationToken;

/// Colours that no format makes small.
fn noise(width: u32, height: u32) -> RgbImage {
    let mut state = 7_u32;
    RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [_, red, green, blue] = state.to_le_bytes();
        Rgb([red, green, blue])
    })
}

fn plain(width: u32, height: u32) -> DynamicImage {
    DynamicImage::ImageRgb8(RgbImage::from_pixel(width, height, Rgb([10, 20, 30])))
}

fn file(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

async fn load(bytes: &[u8]) -> Output {
    let place = Place::new();
    place.put("picture", bytes);
    let output = place.call(&ViewImage, json!({"path": "picture"})).await;
    assert_eq!(place.bytes("picture"), bytes, "the file is never changed");
    output
}

/// The image that the model gets.
fn seen(output: &Output) -> (&'static str, DynamicImage) {
    let image = output.image.as_ref().unwrap_or_else(|| panic!("{}", output.text));
    let bytes = STANDARD.decode(&image.data).unwrap();
    assert_eq!(mime::image_of(&bytes), Some(image.mime_type));
    (image.mime_type, image::load_from_memory(&bytes).unwrap())
}

#[rstest]
#[case(ImageFormat::Png, "image/png")]
#[case(ImageFormat::Jpeg, "image/jpeg")]
#[case(ImageFormat::Gif, "image/gif")]
#[case(ImageFormat::WebP, "image/webp")]
#[tokio::test]
async fn an_image_is_given_as_it_is_under_the_type_of_its_bytes(
    #[case] format: ImageFormat,
    #[case] mime_type: &str,
) {
    let bytes = file(&plain(40, 30), format);
    let output = load(&bytes).await;
    let sum = hex(&Md5::digest(&bytes));
    assert_eq!(output.text, format!("Image loaded: picture ({mime_type}, 1 KB, md5: {sum})"));
    assert!(!output.is_error);
    assert_eq!(output.image.unwrap().data, STANDARD.encode(&bytes));
}

#[tokio::test]
async fn the_sum_is_that_of_md5sum_and_the_name_does_not_decide_about_the_type() {
    let place = Place::new();
    place.put(
        "-x.jpg",
        b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;",
    );
    let text = place.ok(&ViewImage, json!({"path": "-x.jpg"})).await;
    assert_eq!(text, "Image loaded: -x.jpg (image/gif, 1 KB, md5: ab56defb6519c764045ebf94bc348223)");
}

#[rstest]
#[case::wide(3136, 200, (1568, 100))]
#[case::high(100, 1569, (100, 1568))]
#[case::far_too_wide(16_000, 4, (1568, 1))]
#[case::just_fits(1568, 1568, (1568, 1568))]
#[tokio::test]
async fn the_long_side_has_1568_pixels_at_most(
    #[case] width: u32,
    #[case] height: u32,
    #[case] expected: (u32, u32),
) {
    for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP] {
        let output = load(&file(&plain(width, height), format)).await;
        let (mime_type, image) = seen(&output);
        assert_eq!((image.width(), image.height()), expected, "{format:?}");
        let smaller = (width, height) != expected;
        assert_eq!(
            output.text.contains(&format!("shown as a JPEG of {}x{} pixels, ", expected.0, expected.1)),
            smaller,
            "{}",
            output.text
        );
        assert!(!smaller || mime_type == "image/jpeg");
    }
}

#[tokio::test]
async fn more_than_5_mb_of_base64_become_a_jpeg_that_fits() {
    let bytes = file(&DynamicImage::ImageRgb8(noise(1500, 1400)), ImageFormat::Png);
    assert!(bytes.len() > 5 << 20);
    let output = load(&bytes).await;
    let (mime_type, image) = seen(&output);
    assert_eq!((mime_type, image.width(), image.height()), ("image/jpeg", 1500, 1400));
    assert!(output.image.unwrap().data.len() <= 5 << 20);
}

#[tokio::test]
async fn a_large_opaque_png_becomes_a_jpeg_where_that_is_smaller_and_a_transparent_one_stays() {
    let opaque = file(&DynamicImage::ImageRgb8(noise(400, 300)), ImageFormat::Png);
    assert!(opaque.len() > 256 << 10);
    let output = load(&opaque).await;
    assert_eq!(seen(&output).0, "image/jpeg");
    assert!(output.text.contains("; shown as a JPEG of 400x300 pixels, "), "{}", output.text);
    // An alpha channel in which nothing is transparent makes no difference.
    let solid = DynamicImage::ImageRgb8(noise(400, 300)).into_rgba8();
    assert_eq!(
        seen(&load(&file(&DynamicImage::ImageRgba8(solid.clone()), ImageFormat::Png)).await).0,
        "image/jpeg"
    );
    let mut clear = solid;
    clear.put_pixel(399, 299, Rgba([0, 0, 0, 254]));
    let output = load(&file(&DynamicImage::ImageRgba8(clear), ImageFormat::Png)).await;
    assert_eq!(seen(&output).0, "image/png");
    assert!(output.text.ends_with(')'), "{}", output.text);
}

#[tokio::test]
async fn transparency_becomes_white_where_it_must_go() {
    let clear = RgbaImage::from_pixel(2000, 10, Rgba([0, 0, 0, 0]));
    let output = load(&file(&DynamicImage::ImageRgba8(clear), ImageFormat::Png)).await;
    let (_, image) = seen(&output);
    assert!(image.into_rgb8().pixels().all(|pixel| pixel.0.iter().all(|part| *part > 250)));
}

#[tokio::test]
async fn a_photo_that_is_made_smaller_stays_upright() {
    let mut jpeg = Vec::new();
    JpegEncoder::new_with_quality(&mut jpeg, 80).encode_image(&plain(3136, 100)).unwrap();
    // An EXIF segment that says: turn by 90 degrees.
    let exif = b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    jpeg.splice(2..2, exif.iter().copied());
    let output = load(&jpeg).await;
    let (_, image) = seen(&output);
    assert_eq!((image.width(), image.height()), (50, 1568));
}

fn png_that_claims(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = file(&plain(1, 1), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[rstest]
#[case::png(png_that_claims(20_000, 20_000))]
#[case::png_of_one_line(png_that_claims(1 << 30, 1))]
#[case::gif(b"GIF89a\xff\xff\xff\xff\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;".to_vec())]
#[tokio::test]
async fn a_file_that_claims_to_be_huge_is_refused_before_memory_is_taken(#[case] bytes: Vec<u8>) {
    let output = load(&bytes).await;
    assert!(output.is_error && output.image.is_none());
    assert!(output.text.starts_with("picture is too large to be decoded ("), "{}", output.text);
    assert!(output.text.ends_with("make a smaller copy with a command and view that"), "{}", output.text);
}

#[rstest]
fn an_image_that_is_cut_anywhere_is_damaged(
    #[values(ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP)] format: ImageFormat,
) {
    let bytes = file(&DynamicImage::ImageRgb8(noise(9, 7)), format);
    let mime_type = format.to_mime_type();
    let cancel = CancellationToken::new();
    assert!(fit::fit(&bytes, mime_type, &cancel).is_ok());
    // What stands behind the picture itself (a checksum, the mark of the end) is of no account in some formats.
    let tail = if format == ImageFormat::Jpeg { 1 } else { 24 };
    for end in 12..bytes.len() - tail {
        let cut = fit::fit(&bytes[..end], mime_type, &cancel);
        assert!(matches!(cut, Err(fit::FitError::Damaged { .. })), "{end}: {cut:?}");
    }
}

proptest! {
    #[test]
    fn changed_bytes_are_an_error_or_an_image_and_never_a_panic(
        format in prop::sample::select(vec![ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = file(&DynamicImage::ImageRgb8(noise(9, 7)), format);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = fit::fit(&bytes, format.to_mime_type(), &CancellationToken::new());
    }
}

#[tokio::test]
async fn what_is_no_image_is_refused_with_the_reason() {
    let place = Place::new();
    place.put("text.png", "hello");
    place.put("empty.png", "");
    place.put("page.svg", "<svg/>");
    place.put("cut.png", &file(&plain(9, 9), ImageFormat::Png)[..40]);
    std::fs::File::create(place.at("big.png")).unwrap().set_len(MAX_FILE + 1).unwrap();
    place.fifo("fifo.png");
    place.link("gone", "dangling.png");
    for (path, reason) in [
        (
            "text.png",
            "text.png is no png, jpeg, gif or webp image (5 bytes; the bytes count, not the name); convert",
        ),
        ("empty.png", "empty.png is no png, jpeg, gif or webp image (0 bytes"),
        ("page.svg", "page.svg is no png, jpeg, gif or webp image"),
        ("cut.png", "cut.png is a damaged png file: "),
        ("big.png", "big.png is over 64 MiB, too big for view_image; make a smaller copy"),
        ("fifo.png", "fifo.png: is a FIFO, not a regular file; it is not opened"),
        ("/dev/zero", "/dev/zero: is a device, not a regular file; it is not opened"),
        ("/proc/self/stat", "/proc/self/stat is no png, jpeg, gif or webp image"),
        ("dangling.png", "dangling.png: no such file or folder"),
        (".", ".: is a folder, not a file"),
        ("a\0b", "the path holds a NUL character"),
        (" ", "view_image: \"path\" is empty"),
    ] {
        let output = place.call(&ViewImage, json!({"path": path})).await;
        assert!(output.is_error && output.image.is_none(), "{path}");
        assert!(output.text.starts_with(reason), "{path}: {}", output.text);
    }
}

#[tokio::test]
async fn a_level_below_full_sees_all_images_but_the_hidden_ones() {
    let place = Place::with_access(AccessLevel::ReadOnly);
    let bytes = file(&plain(2, 2), ImageFormat::Png);
    place.put(".halo/sessions/a.png", &bytes);
    place.link(".halo/sessions/a.png", "link.png");
    std::fs::write(place.root.join("outside.png"), &bytes).unwrap();
    place.ok(&ViewImage, json!({"path": "../outside.png"})).await;
    for path in [".halo/sessions/a.png", "link.png"] {
        let text = place.err(&ViewImage, json!({"path": path})).await;
        assert!(text.contains("not accessible"), "{text}");
    }
}

#[tokio::test]
async fn a_stopped_session_views_nothing() {
    let place = Place::new();
    place.put("a.png", file(&plain(2, 2), ImageFormat::Png));
    place.context.cancel.cancel();
    assert_eq!(place.err(&ViewImage, json!({"path": "a.png"})).await, "stopped");
    let stopped = fit::fit(&place.bytes("a.png"), "image/png", &place.context.cancel);
    assert!(matches!(stopped, Err(fit::FitError::Stopped)));
}
