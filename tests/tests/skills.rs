//! Skills, placeholders and prompts on the real server: what the model is given, what commands send, and that an edit
//! of a file counts from the next message.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::model_server::{ModelServer, Protocol, Recorded};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, first, kinds_of, text_of};
use serde_json::{Value, json};
use std::fs;

const REVIEW: &str = "---\nname: review\ndescription: Looks at <changes> with care\ncommand: /review\n---\n\
                      Review $1 for {{user_name}}: $ARGUMENTS ({{params.style}}, {{review.secrets.key}})\n";

/// A server whose default agent has these skills, and the model that it speaks to.
async fn scripted(skills: &str) -> (Server, ModelServer) {
    scripted_with(skills, Launch::default()).await
}

async fn scripted_with(skills: &str, launch: Launch) -> (Server, ModelServer) {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    agent(&place, &model, "default", &format!("tools: [file_read, shell_exec]\nskills: {skills}\n"));
    (Server::launch(place, launch).await, model)
}

fn agent(place: &Place, model: &ModelServer, id: &str, yaml: &str) {
    let choice =
        format!("model: {{ provider: scripted, id: some-model, endpoint: \"{}\" }}", model.openai_endpoint());
    place.agent(id, &format!("{choice}\n{yaml}"));
}

/// Sends a message that names no session; its frames to the end.
async fn say(client: &Client, message: &str) -> Vec<Frame> {
    let body = json!({ "message": message });
    client.stream(client.request(reqwest::Method::POST, "/api/web/chat").json(&body)).await.rest().await
}

/// What a command answers.
async fn reply(client: &Client, message: &str) -> String {
    let frames = say(client, message).await;
    assert_eq!(kinds_of(&frames), ["stream", "complete"], "{frames:?}");
    text_of(&frames)
}

fn system(request: &Recorded) -> &str {
    request.body["messages"][0]["content"].as_str().unwrap()
}

fn tools(request: &Recorded) -> Vec<&str> {
    let tools = request.body["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

/// The text of the last message with this role.
fn last(request: &Recorded, role: &str) -> String {
    let mut messages = request.body["messages"].as_array().unwrap().iter().rev();
    let found = messages.find(|message| message["role"] == role).unwrap();
    match &found["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn a_model_is_told_of_the_skills_of_its_agent_and_takes_one_up_as_it_is_then() {
    let (server, model) = scripted("[review, send-file, cron, hidden]").await;
    let place = server.place();
    place.write(".halo/skills/review/SKILL.md", REVIEW);
    place.write(".halo/skills/review/scripts/run.sh", "");
    let long = "long text ".repeat(2000);
    place.write(
        ".halo/skills/hidden/SKILL.md",
        &format!("---\nname: hidden\ndescription: of people\ndisable-model-invocation: true\n---\n{long}"),
    );
    let client = server.client("full").await;
    say(&client, "hello").await;
    let request = model.last_request().unwrap();
    let prompt = system(&request);
    let skills = prompt.split("<available_skills>").nth(1).unwrap();
    assert!(
        skills.contains("<id>review</id>\n    <description>Looks at &lt;changes&gt; with care"),
        "{prompt}"
    );
    assert!(skills.contains("<id>send-file</id>") && !skills.contains("hidden"), "{prompt}");
    assert!(skills.contains("</available_skills>\n\nYour available tools: file_read, shell_exec, "));
    let given = ["file_read", "shell_exec", "continue_task", "activate_skill"];
    assert_eq!(tools(&request), given);
    assert!(server.stderr_with("works without what is not here").await.contains("cron"));
    assert!(reply(&client, "/agent desc").await.contains("Not here, so it works without: cron"));

    // An edit between two calls of one session; nothing is cut.
    let body = format!("---\nname: review\ndescription: d\n---\n{long}end {{{{args}}}}|\n");
    place.write(".halo/skills/review/SKILL.md", &body);
    say(&client, r#"TOOL activate_skill {"skill_id": "review"}"#).await;
    let result = last(&model.last_request().unwrap(), "tool");
    assert!(
        result.starts_with("# Skill: review\n\nlong text") && result.contains("end |\n\n"),
        "{}",
        result.len()
    );
    let script = server.workspace().join(".halo/skills/review/scripts/run.sh");
    assert!(result.ends_with(&format!("Resource files in skill directory:\n- {}", script.display())));
    assert!(result.len() > 20_000);

    for id in ["hidden", "nope", "workspace"] {
        say(&client, &format!(r#"TOOL activate_skill {{"skill_id": "{id}"}}"#)).await;
        let result = last(&model.last_request().unwrap(), "tool");
        assert!(
            result
                .contains(&format!("There is no skill \"{id}\" here. Available skills: review, send-file."))
        );
    }
}

#[tokio::test]
async fn skills_above_the_level_and_those_switched_off_are_not_there() {
    let (server, model) = scripted("[send-file, review]").await;
    server.place().write(".halo/skills/review/SKILL.md", REVIEW);
    let reader = server.client("readonly").await;
    say(&reader, "hello").await;
    let request = model.last_request().unwrap();
    assert!(system(&request).contains("<id>review</id>") && !system(&request).contains("send-file"));
    reply(&server.client("workspace").await, "/skill disable review").await;
    say(&reader, "hello").await;
    let request = model.last_request().unwrap();
    assert!(!system(&request).contains("available_skills"), "{}", system(&request));
    assert!(!tools(&request).contains(&"activate_skill"));
    assert!(reply(&reader, "/review x").await.starts_with("Unknown command: /review"));
}

#[tokio::test]
async fn the_command_of_a_skill_sends_its_text_with_what_was_given() {
    let (mut server, model) = scripted("[review]").await;
    server.stop().await;
    let place = server.place();
    place.write(".halo/skills/review/SKILL.md", REVIEW);
    place.write(".halo/USER.md", "---\nuser_name: Ada\n---\n");
    place.private(
        "secrets/settings.yaml",
        "scripted:\n  secrets: { api_key: sk-of-the-script }\nreview:\n  params: { style: kind }\n  secrets: { key: k-123456 }\n",
    );
    server.restart().await;
    let client = server.client("readonly").await;
    let help = reply(&client, "/help").await;
    let row = help.lines().find(|line| line.starts_with("  /review ")).unwrap();
    assert!(row.ends_with("  Looks at <changes> with care"), "{help}");
    let frames = say(&client, "/Review \"main branch\"  $2 {{now}}").await;
    let expected = "[Skill activated: /review]\n\nReview main branch for Ada: \"main branch\"  $2 {{now}} \
                    (kind, {{review.secrets.key}})";
    assert_eq!(kinds_of(&frames), ["session", "user", "stream", "complete"]);
    assert_eq!(first(&frames, "user")["text"], expected);
    assert!(last(&model.last_request().unwrap(), "user").ends_with(expected));
    let id = first(&frames, "session")["sessionId"].as_str().unwrap().to_owned();
    let history = client.history(&id).await;
    assert!(history.to_string().contains("[Skill activated: /review]"));
    assert!(server.stderr_with("no such placeholder").await.contains("{{review.secrets.key}}"));

    // A busy session queues it like any message.
    let mut running = client.chat(&id, "HOLD").await;
    running.until("stream").await;
    assert_eq!(kinds_of(&client.turn(&id, "/review more").await), ["session", "queued"]);
    model.release();
    running.rest().await;
}

#[tokio::test]
async fn built_in_commands_win_then_the_first_skill_and_some_are_never_commands() {
    let (server, _model) = scripted("[two, one, help-me, quiet, many]").await;
    let place = server.place();
    let skill = |id: &str, more: &str| {
        let text =
            format!("---\nname: {id}\ndescription: about {id}\n{more}---\nbody of {id} [$ARGUMENTS]\n");
        place.write(&format!(".halo/skills/{id}/SKILL.md"), &text);
    };
    skill("one", "command: /x\n");
    skill("two", "command: /x\n");
    skill("help-me", "command: /help\n");
    skill("quiet", "command: /quiet\nuser-invocable: false\n");
    skill(
        "many",
        "command: /many\nverbs:\n  - { name: list, desc: all of them }\n  - { name: drop, requiresAccess: full }\n",
    );
    let client = server.client("readonly").await;
    let text = |frames: Vec<Frame>| first(&frames, "user")["text"].as_str().unwrap().to_owned();
    assert_eq!(text(say(&client, "/x").await), "[Skill activated: /x]\n\nbody of two []");
    assert!(reply(&client, "/help").await.starts_with("Available commands:"));
    assert!(reply(&client, "/quiet").await.starts_with("Unknown command: /quiet"));
    let verbs = reply(&client, "/many").await;
    assert!(verbs.contains("/many list  all of them") && !verbs.contains("drop"), "{verbs}");
    let refused = reply(&client, "/many drop it").await;
    assert_eq!(refused, "/many drop requires full access; this session has readonly access.");
    // An alias of a verb, and one of a command.
    assert_eq!(
        text(say(&client, "/many ls all").await),
        "[Skill activated: /many]\n\nbody of many [list all]"
    );
    place.private("global/aliases.yaml", "top: { /y: /x }\n");
    assert_eq!(text(say(&client, "/y now").await), "[Skill activated: /x]\n\nbody of two [now]");
    // Another agent has other skills.
    let moved = say(&client, "/agent switch executor").await;
    assert_eq!(kinds_of(&moved), ["stream", "switch", "complete"]);
    assert!(reply(&client, "/x").await.starts_with("Unknown command: /x"));
}

#[tokio::test]
async fn objects_get_verbs_from_the_skills_of_their_names() {
    let (server, model) = scripted("[]").await;
    let (full, writer) = (server.client("full").await, server.client("workspace").await);
    let help = reply(&full, "/agent").await;
    assert!(
        help.contains("/agent create") && help.contains("/agent update") && help.contains("/agent delete"),
        "{help}"
    );
    let frames = say(&full, "/agent create a poet").await;
    let text = first(&frames, "user")["text"].as_str().unwrap();
    assert!(
        text.starts_with("[Skill activated: /agent]\n\n# Agents\n\nWhat was asked: create a poet\n"),
        "{text}"
    );
    assert!(text.contains(&format!("{}/.halo/agents/<id>/", server.workspace().display())), "{text}");
    assert!(last(&model.last_request().unwrap(), "user").contains("create a poet"));
    assert!(reply(&writer, "/agent create x").await.starts_with("Unknown command: /agent create"));
    let frames = say(&writer, "/workspace tidy").await;
    assert!(first(&frames, "user")["text"].as_str().unwrap().contains("What was asked: tidy\n"));
    reply(&writer, "/skill disable workspace").await;
    assert!(reply(&writer, "/workspace tidy").await.starts_with("Unknown command: /workspace tidy"));
    // A file stands in for the skill inside the program.
    reply(&writer, "/skill enable workspace").await;
    server.place().private(
        "global/skills/workspace/SKILL.md",
        "---\nname: workspace\ndescription: d\nverbs: [{ name: paint }]\n---\nnew [$ARGUMENTS]\n",
    );
    assert!(reply(&writer, "/workspace tidy").await.starts_with("Unknown command"));
    let frames = say(&writer, "/workspace paint blue").await;
    assert_eq!(first(&frames, "user")["text"], "[Skill activated: /workspace]\n\nnew [paint blue]");
}

#[tokio::test]
async fn agents_and_skills_are_deleted_with_their_folder_and_nothing_else() {
    let (server, _model) = scripted("[]").await;
    let place = server.place();
    let (full, writer) = (server.client("full").await, server.client("workspace").await);
    place.write("outside/keep.txt", "kept");
    place.write(".halo/skills/mine/SKILL.md", "---\nname: mine\ndescription: d\n---\n");
    std::os::unix::fs::symlink(
        server.workspace().join("outside"),
        server.workspace().join(".halo/skills/mine/link"),
    )
    .unwrap();
    place.private("global/skills/mine/SKILL.md", "---\nname: [broken\n---\n");
    let refused = reply(&writer, "/skill delete mine").await;
    assert!(refused.contains("requires full access"), "{refused}");
    let gone = reply(&full, "/skill delete mine").await;
    let folder = server.workspace().join(".halo/skills/mine");
    assert!(gone.contains(&format!("Deleted mine: {} with 2 file(s).", folder.display())), "{gone}");
    assert!(gone.contains("mine is the global one from now on"), "{gone}");
    assert!(!folder.exists() && place.read("outside/keep.txt") == "kept");
    assert!(reply(&full, "/skill delete mine").await.contains("Deleted mine"));
    assert!(reply(&full, "/skill delete mine").await.contains("There is no skill mine"));
    assert!(reply(&full, "/skill delete send-file").await.contains("is built in"));

    assert!(reply(&full, "/agent delete executor").await.contains("is built in"));
    assert!(reply(&full, "/agent delete default").await.contains("is the last agent in the home"));
    place.private("global/agents/poet/agent.yaml", "name: Poet\n");
    place.write(".halo/agents/bad/agent.yaml", "name: [\n");
    assert!(reply(&full, "/agent delete Poet").await.contains("Deleted poet"));
    assert!(reply(&full, "/agent delete bad").await.contains("Deleted bad"));
    assert!(!place.home().join("global/agents/poet").exists());
    assert_eq!(fs::read_dir(server.workspace().join(".halo/agents")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_broken_skill_is_named_with_its_place_and_the_others_go_on() {
    let (server, model) = scripted("[bad, send-file]").await;
    let bad = "---\nname: bad\ndescription: d\nuser-invocable: perhaps\n---\n";
    server.place().write(".halo/skills/bad/SKILL.md", bad);
    let client = server.client("full").await;
    for command in ["/skill list", "/skill desc bad"] {
        let text = reply(&client, command).await;
        assert!(text.contains(".halo/skills/bad/SKILL.md:4:") && text.contains("user-invocable: "), "{text}");
    }
    say(&client, "hello").await;
    let request = model.last_request().unwrap();
    assert!(system(&request).contains("<id>send-file</id>") && !system(&request).contains("<id>bad</id>"));
}

#[tokio::test]
async fn an_edit_of_an_agents_files_counts_from_the_next_message_and_a_broken_one_hurts_no_other() {
    let (server, model) = scripted("[]").await;
    let place = server.place();
    place.private("global/agents/default/AGENT.md", "You are {{agent_name}}, the first. {{general.x}}");
    let client = server.client("full").await;
    let id = client.mint().await;
    client.turn(&id, "hello").await;
    assert!(system(&model.last_request().unwrap()).contains("You are default, the first. {{general.x}}"));
    place.private("global/agents/default/AGENT.md", "The second.");
    place.write(".halo/INSTRUCTIONS.md", "Be brief.");
    agent(place, &model, "default", "tools: [grep]\nskills: [halo]\n");
    client.turn(&id, "hello").await;
    let request = model.last_request().unwrap();
    assert!(system(&request).contains("The second.") && system(&request).contains("Be brief."));
    assert_eq!(tools(&request), ["grep", "continue_task", "activate_skill"]);

    agent(place, &model, "other", "priority: 0\n".trim_start_matches("priority: 0\n"));
    place.private("global/agents/default/agent.yaml", "name: x\npriority: high\n");
    let frames = client.turn(&id, "hello").await;
    let error = first(&frames, "error")["error"].as_str().unwrap();
    assert!(error.contains("global/agents/default/agent.yaml:2:11: priority: "), "{error}");
    let moved = say(&client, "/agent switch other").await;
    assert_eq!(kinds_of(&moved), ["stream", "switch", "complete"], "{moved:?}");
    assert_eq!(kinds_of(&say(&client, "hello").await), ["session", "user", "stream", "complete"]);
}

#[tokio::test]
async fn a_shell_gets_params_and_gives_back_no_secrets() {
    let launch = Launch { env: vec![("PIN_OF_TEST".into(), "pin-from-outside".into())], ..Launch::default() };
    let (mut server, model) = scripted_with("[tool]", launch).await;
    server.stop().await;
    let place = server.place();
    place.private(
        "secrets/settings.yaml",
        "scripted:\n  secrets: { api_key: sk-of-the-script }\n\
         tool:\n  params: { who: world, pin: <<PIN_OF_TEST>>, word: s3cret-word }\n",
    );
    place.write(".halo/settings.yaml", "tool:\n  params: { who: workspace }\n");
    place.write(".halo/skills/tool/SKILL.md", "---\nname: tool\ndescription: d\n---\n{{params.who}}\n");
    place.write(
        ".halo/skills/tool/config.yaml",
        "params:\n  - { key: word, secret: true }\n  - { key: who }\n",
    );
    server.restart().await;
    let client = server.client("full").await;
    let command = "echo {{tool.params.who}} {{tool.params.pin}} {{tool.params.word}} '{{tool.params.none}}' '<<PIN_OF_TEST>>' \
                   $(cat .halo/skills/tool/config.yaml | head -c 6)";
    let order = format!("TOOL shell_exec {}", json!({ "command": command }));
    let frames = say(&client, &order).await;
    let expected = "workspace **** **** {{tool.params.none}} <<PIN_OF_TEST>> params";
    assert!(last(&model.last_request().unwrap(), "tool").starts_with(expected), "{frames:?}");
    assert_eq!(first(&frames, "tool_call")["toolInput"]["command"], command);
    assert!(first(&frames, "tool_result")["result"].as_str().unwrap().starts_with(expected));
    let id = first(&frames, "session")["sessionId"].as_str().unwrap();
    let history = client.history(id).await.to_string();
    assert!(!history.contains("pin-from-outside") && !history.contains("s3cret-word"), "{history}");
    let text = reply(&client, "/skill desc tool").await;
    assert!(text.contains("tool.params.word") && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_message_may_point_to_a_folder_and_its_instructions_go_along_once() {
    let (server, model) = scripted("[]").await;
    let place = server.place();
    place.write("src/INSTRUCTIONS.md", "Rules of src.");
    place.write("src/deep/INSTRUCTIONS.md", "Rules of deep.");
    fs::create_dir_all(place.home().join("secrets/x")).unwrap();
    std::os::unix::fs::symlink(place.home().join("secrets"), server.workspace().join("link")).unwrap();
    let client = server.client("workspace").await;
    let frames = say(&client, "@scope src/deep fix it").await;
    assert_eq!(first(&frames, "user")["text"], "@scope src/deep fix it");
    let told = last(&model.last_request().unwrap(), "user");
    let (_, told) = told.split_once("] ").unwrap();
    assert!(told.starts_with("<workspace-instructions dir=\"src/deep\" note=\""), "{told}");
    assert!(told.contains("### src\n\nRules of src.\n\n### src/deep\n\nRules of deep."), "{told}");
    assert!(told.ends_with("</workspace-instructions>\n\nfix it"), "{told}");
    let id = first(&frames, "session")["sessionId"].as_str().unwrap().to_owned();
    // One that waits gets them, too.
    let mut running = client.chat(&id, "HOLD").await;
    running.until("stream").await;
    client.turn(&id, "and then @scope src SAY done").await;
    model.release();
    running.rest().await;
    let told = last(&model.last_request().unwrap(), "user");
    assert!(told.contains("Rules of src.") && told.ends_with("\n\nand then SAY done"), "{told}");
    for folder in ["nowhere", "../..", "link/x", "/etc"] {
        client.turn(&id, &format!("@scope {folder} go on")).await;
        let told = last(&model.last_request().unwrap(), "user");
        assert!(told.ends_with("] go on"), "{told}");
    }
    let rows = client.history(&id).await;
    let notices = rows["messages"].as_array().unwrap().iter().filter(|row| row["type"] == "notification");
    let notices: Vec<&str> = notices.map(|row| row["content"].as_str().unwrap()).collect();
    assert_eq!(notices.len(), 4, "{notices:?}");
    assert!(notices[0].contains("@scope nowhere: there is no such folder"), "{notices:?}");
    assert!(
        rows.to_string().contains("@scope src/deep fix it") && !rows.to_string().contains("Rules of deep")
    );
}

#[tokio::test]
async fn no_link_in_the_workspace_brings_hidden_files_into_a_prompt() {
    let (server, model) = scripted("[leak]").await;
    let place = server.place();
    place.private("secrets/notes.md", "---\nname: leak\ndescription: leaked-by-front\n---\nleaked-by-body");
    let hidden = place.home().join("secrets/notes.md");
    fs::create_dir_all(server.workspace().join(".halo/skills/leak")).unwrap();
    for name in ["skills/leak/SKILL.md", "INDEX.md", "USER.md", "INSTRUCTIONS.md"] {
        std::os::unix::fs::symlink(&hidden, server.workspace().join(".halo").join(name)).unwrap();
    }
    let client = server.client("workspace").await;
    say(&client, "hello").await;
    let request = model.last_request().unwrap();
    assert!(!request.body.to_string().contains("leaked"), "{}", system(&request));
    assert!(!reply(&client, "/skill list").await.contains("leaked"));
}

#[tokio::test]
async fn the_skill_that_the_docs_show_works() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let docs = fs::read_to_string(root.join("docs/agents.md")).unwrap();
    let (_, shown) =
        docs.split_once("at `~/.halo/global/skills/release-notes/SKILL.md`:\n\n```markdown\n").unwrap();
    let (text, after) = shown.split_once("```").unwrap();
    assert!(after.contains("skills: [release-notes]") && after.contains("`/notes v1.2 short`"));
    let (server, model) = scripted("[release-notes]").await;
    server.place().private("global/skills/release-notes/SKILL.md", text);
    let client = server.client("readonly").await;
    let frames = say(&client, "/notes v1.2 short").await;
    let sent = first(&frames, "user")["text"].as_str().unwrap();
    assert!(sent.starts_with("[Skill activated: /notes]\n\n# Release notes for the user\n\n"), "{sent}");
    assert!(sent.contains("since the tag v1.2 (all that was asked: v1.2 short)"), "{sent}");
    assert!(system(&model.last_request().unwrap()).contains("<id>release-notes</id>"));
    say(&client, r#"TOOL activate_skill {"skill_id": "release-notes"}"#).await;
    assert!(
        last(&model.last_request().unwrap(), "tool").starts_with("# Skill: release-notes\n\n# Release notes")
    );
    for (skill, _) in docs
        .split("| skill in the binary")
        .nth(1)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .take(6)
    {
        let text = reply(&client, &format!("/skill desc {skill}")).await;
        let level = matches!(skill, "halo" | "self");
        assert_eq!(text.starts_with(&format!("{skill} [built-in]")), level, "{text}");
    }
}
