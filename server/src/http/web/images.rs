//! What comes in the `images` of a message: base64. What is of a kind that models take, judged by its bytes and not
//! by what the client calls it, is an image for the model; anything else is a file to be saved.

use super::body::Fields;
use crate::http::error::ApiError;
use crate::mime;
use crate::session::InboundImage;
use crate::workspace::inbound::Media;
use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::value::RawValue;

/// How many entries one message may carry. Their size is bounded by the body's.
pub const MAX_IMAGES: usize = 20;

/// What models take. Something else under one of these names is a mistake that its sender should hear of.
const MODEL_TYPES: [&str; 5] = ["image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"];

/// Some clients leave the padding out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the `images` of a chat: those for the model, and the rest, each in its order.
pub fn read(images: &[&RawValue]) -> Result<(Vec<InboundImage>, Vec<Media>), ApiError> {
    if images.len() > MAX_IMAGES {
        return Err(ApiError::TooManyImages { max: MAX_IMAGES });
    }
    let (mut for_model, mut files) = (Vec::new(), Vec::new());
    for (index, image) in images.iter().enumerate() {
        match read_one(index, image)? {
            Entry::Image(image) => for_model.push(image),
            Entry::File(file) => files.push(file),
        }
    }
    Ok((for_model, files))
}

enum Entry {
    Image(InboundImage),
    File(Media),
}

fn read_one(index: usize, image: &RawValue) -> Result<Entry, ApiError> {
    let fields = Fields::of_value(image, &["data", "mimeType"], format!("images[{index}]"))?;
    let invalid = |reason| ApiError::InvalidImage { index, reason };
    let said = fields.text("mimeType")?.unwrap_or_default();
    let data = fields.text("data")?.filter(|data| !data.is_empty()).ok_or(invalid("data is missing"))?;
    let bytes = LENIENT.decode(&data).map_err(|_| invalid("data is not base64"))?;
    let Some(mime_type) = mime::image_of(&bytes) else {
        if MODEL_TYPES.iter().any(|known| mime::essence(&said).eq_ignore_ascii_case(known)) {
            return Err(invalid("data is no jpeg, png, gif or webp image"));
        }
        return Ok(Entry::File(Media { mime_type: said, bytes }));
    };
    // Providers want the padding.
    let data = if data.len().is_multiple_of(4) { data } else { STANDARD.encode(&bytes) };
    Ok(Entry::Image(InboundImage { mime_type: mime_type.to_owned(), data }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{json, value::to_raw_value};

    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn read_values(values: &[serde_json::Value]) -> Result<(Vec<InboundImage>, Vec<Media>), ApiError> {
        let raw: Vec<_> = values.iter().map(|value| to_raw_value(value).unwrap()).collect();
        read(&raw.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }

    #[test]
    fn the_bytes_decide_about_the_type() {
        let (images, files) = read_values(&[json!({ "data": PNG, "mimeType": "image/jpeg" })]).unwrap();
        assert!(files.is_empty());
        assert_eq!(images, [InboundImage { mime_type: "image/png".into(), data: PNG.into() }]);
    }

    #[test]
    fn what_no_model_takes_is_a_file_as_the_client_calls_it() {
        let sound = json!({ "data": "AAAA", "mimeType": "audio/webm" });
        let (images, files) =
            read_values(&[sound, json!({ "data": PNG }), json!({ "data": "AA==" })]).unwrap();
        assert_eq!(images.len(), 1);
        let file = |mime_type: &str, bytes: &[u8]| Media { mime_type: mime_type.into(), bytes: bytes.into() };
        assert_eq!(files, [file("audio/webm", &[0; 3]), file("", &[0])]);
    }

    #[test]
    fn missing_padding_is_put_back() {
        let (images, _) = read_values(&[json!({ "data": PNG.trim_end_matches('=') })]).unwrap();
        assert_eq!(images[0].data, PNG);
    }

    #[rstest]
    #[case(json!("text"), "images[0] must be an object")]
    #[case(json!({ "data": 5 }), "images[0].data must be a string")]
    #[case(json!({ "data": PNG, "mimeType": 5 }), "images[0].mimeType must be a string")]
    #[case(json!({ "mimeType": "image/png" }), "images[0]: data is missing")]
    #[case(json!({ "data": "not base64!" }), "images[0]: data is not base64")]
    #[case(json!({ "data": "AAAA", "mimeType": "image/png" }), "images[0]: data is no jpeg, png, gif or webp image")]
    #[case(json!({ "data": "AAAA", "mimeType": "Image/JPEG;q=1" }), "images[0]: data is no jpeg, png, gif or webp image")]
    fn a_bad_image_is_refused_by_its_place(#[case] image: serde_json::Value, #[case] text: &str) {
        assert_eq!(read_values(&[image]).unwrap_err().to_string(), text);
    }

    #[test]
    fn more_images_than_the_limit_are_refused() {
        let many = vec![json!({ "data": PNG }); MAX_IMAGES + 1];
        assert_eq!(read_values(&many), Err(ApiError::TooManyImages { max: MAX_IMAGES }));
        assert_eq!(read_values(&many[..MAX_IMAGES]).unwrap().0.len(), MAX_IMAGES);
    }
}
