//! Turns that are cut at every place, twenty times each: what the model is told next is always valid for a provider
//! that insists on one result right after each call.

use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame};
use halo_tests::within;
use rstest::rstest;
use serde_json::json;

const TIMES: usize = 20;

/// Where a turn is cut.
#[derive(Clone, Copy, Debug)]
enum Spot {
    /// While the model writes the text before its calls.
    BeforeTheTool,
    /// While a tool runs.
    DuringTheTool,
    /// While the second of three runs.
    BetweenCalls,
}

/// How it is cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Stop,
    Interrupt,
    Kill,
}

impl Spot {
    /// An answer of the model that comes to this place and stays there.
    fn answer(self) -> Script {
        let quick = json!({"command": "true"});
        let slow = json!({"command": "sleep 304"});
        match self {
            Self::BeforeTheTool => {
                Script::text(["I will ", "look. "]).hold_after(1).and_call("shell_exec", quick)
            }
            Self::DuringTheTool => Script::text(["I will look."]).and_call("shell_exec", slow),
            Self::BetweenCalls => Script::call("shell_exec", quick.clone())
                .and_call("shell_exec", slow)
                .and_call("shell_exec", quick),
        }
    }

    /// The frame that tells that the place is reached.
    fn reached(self) -> &'static str {
        match self {
            Self::BeforeTheTool => "stream",
            Self::DuringTheTool => "tool_call",
            Self::BetweenCalls => "tool_result",
        }
    }
}

#[rstest]
#[tokio::test]
async fn the_next_request_is_valid(
    #[values(Spot::BeforeTheTool, Spot::DuringTheTool, Spot::BetweenCalls)] place: Spot,
    #[values(Cut::Stop, Cut::Interrupt, Cut::Kill)] cut: Cut,
    #[values(Protocol::OpenAi, Protocol::Anthropic)] protocol: Protocol,
) {
    let model = ModelServer::start().await.expect("a model server");
    let home = Place::new();
    home.scripted(&model, protocol);
    let mut server = Server::launch(home, Launch::default()).await;
    let mut client = server.client("full").await;
    let session = client.mint().await;
    for time in 0..TIMES {
        model.push(place.answer());
        let mut stream = client.chat(&session, &format!("turn {time}")).await;
        stream.until(place.reached()).await;
        match cut {
            Cut::Stop => {
                assert!(client.stop(&session).await);
                stream.rest().await;
            }
            Cut::Interrupt => {
                client.turn(&session, "rather this").await;
                let told = client.turn(&session, "/session interrupt").await;
                assert_eq!(told.last().map(Frame::kind), Some("complete"));
                let rest = stream.rest().await;
                assert_eq!(rest.last().map(Frame::kind), Some("complete"), "{time}: {rest:?}");
            }
            Cut::Kill => {
                server.kill9().await;
                server.restart().await;
                client = client.at(server.url());
                rest(&client, &session).await;
            }
        }
        let frames = client.turn(&session, &format!("after {time}")).await;
        assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{time}: {frames:?}");
    }
    // The model refuses what a strict provider would refuse, so every run above has ended well.
    let history = client.history(&session).await;
    let rows = history["messages"].as_array().expect("messages");
    let errors: Vec<_> = rows.iter().filter(|row| row.to_string().contains("[error]")).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for time in 0..TIMES {
        for text in [format!("turn {time}"), format!("after {time}")] {
            assert_eq!(
                rows.iter().filter(|row| row["type"] == "user" && row["content"] == text).count(),
                1,
                "{text}"
            );
        }
    }
}

/// Follows what the restart has taken up again, to its end.
async fn rest(client: &Client, session: &str) {
    let rest = async {
        while client.history(session).await["running"] != false {
            let mut frames = client.subscribe(session, None).await;
            while let Some(frame) = frames.next().await {
                assert_ne!(frame.kind(), "error", "{frame:?}");
            }
        }
    };
    within("the session comes to rest", rest).await;
}
