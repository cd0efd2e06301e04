//! Makes an image fit for a model: decodes it, so that a damaged one is found here and not by the provider, and
//! makes a smaller JPEG of one that is too large. Memory is bounded, whatever the file claims to be.

use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::metadata::Orientation;
use image::{DynamicImage, GenericImageView, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use image::{Rgb, RgbImage};
use std::io::Cursor;
use tokio_util::sync::CancellationToken;

/// Bytes of base64 that a provider takes for one image.
const MAX_BASE64: usize = 5 * 1024 * 1024;
/// Pixels of the longer side; providers shrink what has more.
const MAX_SIDE: u32 = 1568;
/// An opaque PNG over this many bytes becomes a JPEG where that is smaller.
const LARGE_PNG: usize = 256 * 1024;
/// Qualities that are tried, until the image fits.
const QUALITIES: [u8; 5] = [82, 70, 58, 46, 34];
/// Bytes that a decoded image may take.
const MAX_DECODED: u64 = 256 * 1024 * 1024;
/// Pixels of a side that is decoded.
const MAX_DECODED_SIDE: u32 = 32 * 1024;

/// What the model gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Fitted {
    /// The file's own bytes.
    AsItIs,
    /// A smaller picture of it.
    Smaller {
        /// The bytes of a JPEG.
        jpeg: Vec<u8>,
        /// Pixels.
        width: u32,
        /// Pixels.
        height: u32,
        /// Whether the file may hold more frames than this one.
        first_frame: bool,
    },
}

/// Why an image cannot be shown. The text goes on after the file's name.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The bytes do not make an image.
    #[error("is a damaged {kind} file: {reason}; make it anew, or look at it with a command")]
    Damaged {
        /// The format.
        kind: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// Decoding would take too much memory.
    #[error("is too large to be decoded ({0}); make a smaller copy with a command and view that")]
    TooLarge(String),
    /// The session was stopped.
    #[error("was not loaded: stopped")]
    Stopped,
}

/// Looks at an image of a type that [`crate::mime::image_of`] knows.
pub fn fit(bytes: &[u8], mime_type: &'static str, cancel: &CancellationToken) -> Result<Fitted, FitError> {
    let go_on = || if cancel.is_cancelled() { Err(FitError::Stopped) } else { Ok(()) };
    go_on()?;
    let heavy = bytes.len().div_ceil(3) * 4 > MAX_BASE64;
    let (image, orientation) = match decode(bytes, mime_type)? {
        Decoded::Image(image, orientation) => (image, orientation),
        Decoded::Unknown if heavy => {
            return Err(FitError::TooLarge(format!(
                "{} bytes of a kind that only the model knows",
                bytes.len()
            )));
        }
        Decoded::Unknown => return Ok(Fitted::AsItIs),
    };
    go_on()?;
    let (width, height) = image.dimensions();
    let must = heavy || width.max(height) > MAX_SIDE;
    let large = mime_type == "image/png" && bytes.len() > LARGE_PNG && is_opaque(&image);
    if !must && !large {
        return Ok(Fitted::AsItIs);
    }
    let mut image = shrink(image);
    image.apply_orientation(orientation);
    go_on()?;
    let image = on_white(image);
    let first_frame = matches!(mime_type, "image/gif" | "image/webp");
    let (width, height) = image.dimensions();
    for quality in QUALITIES {
        go_on()?;
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, quality)
            .encode_image(&image)
            .map_err(|error| FitError::TooLarge(error.to_string()))?;
        if must && jpeg.len().div_ceil(3) * 4 > MAX_BASE64 {
            continue;
        }
        if !must && jpeg.len() >= bytes.len() {
            break;
        }
        return Ok(Fitted::Smaller { jpeg, width, height, first_frame });
    }
    if must { Err(FitError::TooLarge(format!("{width}x{height} pixels"))) } else { Ok(Fitted::AsItIs) }
}

enum Decoded {
    /// With how it must be turned to be upright.
    Image(DynamicImage, Orientation),
    /// Of a variant that the decoder does not know; nothing can be said about it.
    Unknown,
}

fn decode(bytes: &[u8], mime_type: &'static str) -> Result<Decoded, FitError> {
    let kind = mime_type.trim_start_matches("image/");
    let fail = |error: ImageError| match error {
        ImageError::Limits(_) => FitError::TooLarge(error.to_string()),
        other => FitError::Damaged { kind, reason: other.to_string() },
    };
    let format = ImageFormat::from_mime_type(mime_type)
        .ok_or_else(|| FitError::Damaged { kind, reason: "it is of no known format".into() })?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_DECODED_SIDE);
    limits.max_image_height = Some(MAX_DECODED_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    let mut decoder = match reader.into_decoder() {
        Err(ImageError::Unsupported(_)) => return Ok(Decoded::Unknown),
        decoder => decoder.map_err(fail)?,
    };
    let (width, height) = decoder.dimensions();
    if decoder.total_bytes() > MAX_DECODED || width.max(height) > MAX_DECODED_SIDE {
        return Err(FitError::TooLarge(format!("{width}x{height} pixels")));
    }
    if format == ImageFormat::Jpeg && !is_whole_jpeg(bytes) {
        return Err(FitError::Damaged { kind, reason: "its end is missing".into() });
    }
    // A damaged note about the orientation is no reason to show nothing.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    match DynamicImage::from_decoder(decoder) {
        Ok(image) => Ok(Decoded::Image(image, orientation)),
        Err(ImageError::Unsupported(_)) => Ok(Decoded::Unknown),
        Err(error) => Err(fail(error)),
    }
}

/// Whether the marker of the end comes after the picture. The decoder fills what is missing with grey.
fn is_whole_jpeg(bytes: &[u8]) -> bool {
    let mut rest = &bytes[2.min(bytes.len())..];
    loop {
        let Some(at) = memchr::memchr(0xff, rest) else { return false };
        match &rest[at + 1..] {
            [0xd9, ..] => return true,
            // Fill bytes, and within the picture: an escaped byte, or a mark between its parts.
            [0xff, ..] => rest = &rest[at + 1..],
            [0x00 | 0x01 | 0xd0..=0xd8, more @ ..] => rest = more,
            // A segment says how long it is.
            [_, high, low, ..] => {
                let end = at + 2 + usize::from(u16::from_be_bytes([*high, *low]));
                match rest.get(end..) {
                    Some(more) => rest = more,
                    None => return false,
                }
            }
            _ => return false,
        }
    }
}

fn is_opaque(image: &DynamicImage) -> bool {
    !image.color().has_alpha() || image.pixels().all(|(_, _, pixel)| pixel.0[3] == u8::MAX)
}

/// No larger than models want it.
fn shrink(image: DynamicImage) -> DynamicImage {
    let side = image.width().max(image.height());
    if side <= MAX_SIDE {
        return image;
    }
    // A rough step first: the fine one takes much memory for each column of its source.
    let image = if side > 2 * MAX_SIDE { image.thumbnail(2 * MAX_SIDE, 2 * MAX_SIDE) } else { image };
    image.resize(MAX_SIDE, MAX_SIDE, FilterType::Lanczos3)
}

/// Without transparency, which JPEG does not know.
fn on_white(image: DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.into_rgb8();
    }
    let image = image.into_rgba8();
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0;
        let blend = |part: u8| {
            let (part, alpha) = (u16::from(part), u16::from(alpha));
            ((part * alpha + 255 * (255 - alpha) + 127) / 255) as u8
        };
        Rgb([red, green, blue].map(blend))
    })
}
