//! `view_image` from the model's call to what the model gets: the image beside its result, only for models that
//! see, and never more of them than a request takes.

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, kinds_of};
use rstest::rstest;
use serde_json::Value;
use std::fmt::Write;

/// A GIF of one pixel.
const GIF: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
/// The same in base64.
const GIF_BASE64: &str = "R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAkQBADs=";
const ORDER: &str = r#"TOOL view_image {"path": "a.png"}"#;

struct Stack {
    _server: Server,
    model: ModelServer,
    client: Client,
}

async fn stack(access: &str, image: bool) -> Stack {
    stack_over(Protocol::OpenAi, access, image).await
}

async fn stack_over(protocol: Protocol, access: &str, image: bool) -> Stack {
    let model = ModelServer::start().await.expect("a model server");
    let place = Place::new();
    place.scripted(&model, protocol);
    let choice = format!("model: {{ provider: scripted, id: some-model, image: {image} }}");
    place.agent("default", &format!("{choice}\ntools: [file_read, view_image]\n"));
    std::fs::write(place.workspace().join("a.png"), GIF).expect("an image");
    let mut other = GIF.to_vec();
    other[14] = 0x77;
    std::fs::write(place.workspace().join("b.png"), other).expect("another image");
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client(access).await;
    Stack { _server: server, model, client }
}

impl Stack {
    fn result(frames: &[Frame]) -> &str {
        let result = frames.iter().find(|frame| frame.kind() == "tool_result");
        result.and_then(|frame| frame.data["result"].as_str()).unwrap_or_else(|| panic!("{frames:?}"))
    }

    /// How many images the last call to the model held, and its text.
    fn last_call(&self) -> (usize, String) {
        let body = self.model.last_request().expect("a request").body;
        let text = body.to_string();
        (text.matches(GIF_BASE64).count(), text)
    }
}

#[rstest]
#[case("full")]
#[case("workspace")]
#[case("readonly")]
#[tokio::test]
async fn the_model_gets_the_image_beside_the_result_at_every_level(#[case] access: &str) {
    let stack = stack(access, true).await;
    let session = stack.client.mint().await;
    let frames = stack.client.turn(&session, ORDER).await;
    assert_eq!(kinds_of(&frames), ["session", "user", "tool_call", "tool_result", "stream", "complete"]);
    let expected = "Image loaded: a.png (image/gif, 1 KB, md5: ab56defb6519c764045ebf94bc348223)";
    assert_eq!(Stack::result(&frames), expected);
    let (images, text) = stack.last_call();
    assert_eq!(images, 1, "{text}");
    assert!(text.contains("data:image/gif;base64,") && text.contains(expected), "{text}");
    // It is a part of the conversation from now on, and no client has to carry it.
    stack.client.turn(&session, "and now?").await;
    assert_eq!(stack.last_call().0, 1);
    let history = stack.client.history(&session).await.to_string();
    assert!(history.contains(expected) && !history.contains(GIF_BASE64), "{history}");
}

#[tokio::test]
async fn of_several_images_each_goes_with_the_result_that_shows_it() {
    let stack = stack_over(Protocol::Anthropic, "full", true).await;
    let session = stack.client.mint().await;
    let orders =
        format!("{ORDER}\nTOOL file_read {{\"path\": \"none\"}}\n{}", ORDER.replace("a.png", "b.png"));
    stack.client.turn(&session, &orders).await;
    let body = stack.model.last_request().expect("a request").body;
    let results = body["messages"].as_array().and_then(|messages| messages.last()).expect("results");
    let shown: Vec<String> = results["content"].as_array().into_iter().flatten().map(image_of).collect();
    assert_eq!(shown.len(), 3, "{body}");
    assert_eq!((&*shown[0], &*shown[1]), (GIF_BASE64, ""), "{body}");
    assert!(!shown[2].is_empty() && shown[2] != GIF_BASE64, "{body}");
}

/// The images within a result.
fn image_of(result: &Value) -> String {
    let parts = result["content"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["source"]["data"].as_str()).collect()
}

#[tokio::test]
async fn a_model_without_sight_is_not_offered_the_tool() {
    let stack = stack("full", false).await;
    let session = stack.client.mint().await;
    let frames = stack.client.turn(&session, ORDER).await;
    assert!(Stack::result(&frames).contains("no tool named \"view_image\""), "{frames:?}");
    let body = stack.model.last_request().expect("a request").body;
    let tools: Vec<&str> = body["tools"].as_array().into_iter().flatten().filter_map(name).collect();
    assert!(tools.contains(&"file_read") && !tools.contains(&"view_image"), "{tools:?}");
}

fn name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

#[tokio::test]
async fn of_more_than_100_images_the_oldest_leave_the_conversation_with_a_notice() {
    let stack = stack("full", true).await;
    let session = stack.client.mint().await;
    let mut orders = String::new();
    for _ in 0..101 {
        let _ = writeln!(orders, "{ORDER}");
    }
    let frames = stack.client.turn(&session, orders.trim_end()).await;
    assert_eq!(frames.last().map(Frame::kind), Some("complete"));
    assert_eq!(stack.last_call().0, 49);
    let history = stack.client.history(&session).await;
    let rows = history["messages"].as_array().expect("messages");
    let notice = "Removed 52 older image(s) from context to keep the request under the size limit";
    assert!(rows.iter().any(|row| row["type"] == "notification" && row["content"] == notice), "{rows:?}");
}
