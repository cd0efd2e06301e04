//! A prompt's content blocks as the one message that the server takes. Text that stands side by side is joined
//! as it is; everything else becomes a paragraph of its own; what cannot be sent is dropped and named.

use agent_client_protocol::v1::schema::{ContentBlock, EmbeddedResourceResource};
use serde_json::Value;

use crate::upstream::{Image, Message};

/// What became of the blocks.
#[derive(Debug, Default)]
pub struct Composed {
    /// The message.
    pub message: Message,
    /// The kinds of the blocks that were dropped, in order.
    pub dropped: Vec<String>,
}

impl Composed {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.message.text.trim().is_empty() && self.message.images.is_empty()
    }
}

/// Composes `blocks`. The error tells which block is not of the shape of its kind.
pub fn compose(blocks: Vec<Value>) -> Result<Composed, String> {
    let mut composed = Composed::default();
    let mut paragraphs: Vec<String> = Vec::new();
    let mut joins = false;
    for (n, block) in blocks.into_iter().enumerate() {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let block = match serde_json::from_value::<ContentBlock>(block) {
            Ok(block) => block,
            Err(error)
                if matches!(
                    kind.as_str(),
                    "text" | "image" | "audio" | "resource" | "resource_link" | ""
                ) =>
            {
                return Err(format!("prompt[{n}]: {error}"));
            }
            Err(_) => {
                composed.dropped.push(kind);
                continue;
            }
        };
        let paragraph = match block {
            ContentBlock::Text(text) => {
                match paragraphs.last_mut() {
                    Some(last) if joins => last.push_str(&text.text),
                    _ => paragraphs.push(text.text),
                }
                joins = true;
                continue;
            }
            ContentBlock::Image(image) => {
                // In an array of its own, but it parts the texts around it all the same.
                composed.message.images.push(Image { data: image.data, mime_type: image.mime_type });
                joins = false;
                continue;
            }
            ContentBlock::Resource(resource) => match resource.resource {
                EmbeddedResourceResource::TextResourceContents(text) => quoted(&text.uri, &text.text),
                EmbeddedResourceResource::BlobResourceContents(blob) => {
                    format!("[binary resource omitted: {}]", blob.uri)
                }
                _ => {
                    composed.dropped.push(kind);
                    continue;
                }
            },
            ContentBlock::ResourceLink(link) => format!("[resource link: {} {}]", link.name, link.uri),
            _ => {
                composed.dropped.push(kind);
                continue;
            }
        };
        paragraphs.push(paragraph);
        joins = false;
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    composed.message.text = paragraphs.join("\n\n");
    Ok(composed)
}

/// `text` in a fence that nothing in it can close.
fn quoted(uri: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    format!("[resource: {uri}]\n{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    fn text(blocks: Value) -> String {
        let Value::Array(blocks) = blocks else { panic!("a list") };
        compose(blocks).expect("good blocks").message.text
    }

    #[rstest]
    #[case::joined(json!([
        {"type": "text", "text": "Explain "}, {"type": "text", "text": "this:"},
        {"type": "resource", "resource": {"uri": "file:///home/me/a.py", "text": "print(1)"}},
        {"type": "text", "text": "Thanks"}
    ]), "Explain this:\n\n[resource: file:///home/me/a.py]\n```\nprint(1)\n```\n\nThanks")]
    #[case::fence(json!([{"type": "resource", "resource": {"uri": "file:///r.md", "text": "```\nx\n```"}}]),
        "[resource: file:///r.md]\n````\n```\nx\n```\n````")]
    #[case::blob(json!([
        {"type": "text", "text": "look"},
        {"type": "resource", "resource": {"uri": "file:///img.bin", "blob": "AAAA"}}
    ]), "look\n\n[binary resource omitted: file:///img.bin]")]
    #[case::link(json!([{"type": "resource_link", "name": "doc.pdf", "uri": "file:///home/me/doc.pdf"}]),
        "[resource link: doc.pdf file:///home/me/doc.pdf]")]
    #[case::parted(json!([
        {"type": "text", "text": "a"}, {"type": "image", "data": "x", "mimeType": "image/png"},
        {"type": "text", "text": "b"}
    ]), "a\n\nb")]
    fn blocks_become_one_message(#[case] blocks: Value, #[case] expected: &str) {
        assert_eq!(text(blocks), expected);
    }

    #[test]
    fn images_go_beside_the_text_and_what_cannot_be_sent_is_named() {
        let composed = compose(vec![
            json!({"type": "text", "text": "hi"}),
            json!({"type": "image", "data": "iVBO", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}),
            json!({"type": "hologram"}),
        ])
        .expect("good");
        assert_eq!(composed.message.text, "hi");
        assert_eq!(composed.message.images, [Image { data: "iVBO".into(), mime_type: "image/png".into() }]);
        assert_eq!(composed.dropped, ["audio", "hologram"]);
    }

    #[test]
    fn a_dropped_block_does_not_part_the_texts_around_it() {
        assert_eq!(
            text(json!([{"type": "text", "text": "a"}, {"type": "x"}, {"type": "text", "text": "b"}])),
            "ab"
        );
    }

    #[rstest]
    #[case(json!([]))]
    #[case(json!([{"type": "text", "text": " \n"}]))]
    #[case(json!([{"type": "audio", "data": "", "mimeType": "audio/wav"}]))]
    fn a_prompt_with_nothing_to_send_is_empty(#[case] blocks: Value) {
        let Value::Array(blocks) = blocks else { panic!("a list") };
        assert!(compose(blocks).expect("good").is_empty());
    }

    #[test]
    fn a_block_that_is_not_of_its_shape_is_named() {
        let error =
            compose(vec![json!({"type": "text", "text": "a"}), json!({"type": "image"})]).expect_err("bad");
        assert!(error.starts_with("prompt[1]"), "{error}");
    }

    proptest! {
        #[test]
        fn a_fence_is_longer_than_any_run_inside(text in "[`a\n]{0,40}") {
            let quoted = quoted("u", &text);
            let fence = quoted.lines().nth(1).expect("a fence");
            prop_assert!(fence.len() >= 3 && !text.contains(fence));
        }
    }
}
