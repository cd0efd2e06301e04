//! Images that come with a message: checked to be base64 and of a kind that models take, judged by their bytes
//! and not by what the client calls them.

use super::body::Fields;
use crate::http::error::ApiError;
use crate::session::InboundImage;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::value::RawValue;

/// How many images one message may carry. Their size is bounded by the body's.
pub const MAX_IMAGES: usize = 20;

/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the `images` of a chat.
pub fn read(images: &[&RawValue]) -> Result<Vec<InboundImage>, ApiError> {
    if images.len() > MAX_IMAGES {
        return Err(ApiError::TooManyImages { max: MAX_IMAGES });
    }
    images.iter().enumerate().map(|(index, image)| read_one(index, image)).collect()
}

fn read_one(index: usize, image: &RawValue) -> Result<InboundImage, ApiError> {
    let fields = Fields::of_value(image, &["data", "mimeType"], format!("images[{index}]"))?;
    let invalid = |reason| ApiError::InvalidImage { index, reason };
    // Only its JSON type matters: the bytes say what they are.
    fields.text("mimeType")?;
    let data = fields.text("data")?.filter(|data| !data.is_empty()).ok_or(invalid("data is missing"))?;
    let bytes = LENIENT.decode(&data).map_err(|_| invalid("data is not base64"))?;
    let mime_type = sniff(&bytes).ok_or(invalid("only jpeg, png, gif and webp images can be sent"))?;
    // Providers want the padding.
    let data = if data.len().is_multiple_of(4) { data } else { STANDARD.encode(&bytes) };
    Ok(InboundImage { mime_type: mime_type.to_owned(), data })
}

fn sniff(bytes: &[u8]) -> Option<&'static str> {
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
    use super::*;
    use rstest::rstest;
    use serde_json::{json, value::to_raw_value};

    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn read_values(values: &[serde_json::Value]) -> Result<Vec<InboundImage>, ApiError> {
        let raw: Vec<_> = values.iter().map(|value| to_raw_value(value).unwrap()).collect();
        read(&raw.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }

    #[test]
    fn the_bytes_decide_about_the_type() {
        let images = read_values(&[json!({ "data": PNG, "mimeType": "image/jpeg" })]).unwrap();
        assert_eq!(images, [InboundImage { mime_type: "image/png".into(), data: PNG.into() }]);
    }

    #[test]
    fn missing_padding_is_put_back() {
        let images = read_values(&[json!({ "data": PNG.trim_end_matches('=') })]).unwrap();
        assert_eq!(images[0].data, PNG);
    }

    #[rstest]
    #[case(json!("text"), "images[0] must be an object")]
    #[case(json!({ "data": 5 }), "images[0].data must be a string")]
    #[case(json!({ "data": PNG, "mimeType": 5 }), "images[0].mimeType must be a string")]
    #[case(json!({ "mimeType": "image/png" }), "images[0]: data is missing")]
    #[case(json!({ "data": "not base64!" }), "images[0]: data is not base64")]
    #[case(json!({ "data": "AAAA", "mimeType": "audio/webm" }), "images[0]: only jpeg, png, gif and webp images can be sent")]
    fn a_bad_image_is_refused_by_its_place(#[case] image: serde_json::Value, #[case] text: &str) {
        assert_eq!(read_values(&[image]).unwrap_err().to_string(), text);
    }

    #[test]
    fn more_images_than_the_limit_are_refused() {
        let many = vec![json!({ "data": PNG }); MAX_IMAGES + 1];
        assert_eq!(read_values(&many), Err(ApiError::TooManyImages { max: MAX_IMAGES }));
        assert_eq!(read_values(&many[..MAX_IMAGES]).unwrap().len(), MAX_IMAGES);
    }
}
