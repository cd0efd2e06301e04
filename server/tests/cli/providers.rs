//! What the commands say of model providers: their files, their keys, and which of them answers.

use super::support::{Ran, Sandbox};
use rstest::rstest;

#[rstest]
#[case(&[], "", "note    models     no provider has a key, so the demo model answers; put a key into {settings}")]
#[case(&[], "openai:\n  secrets:\n    api_key: k\n", "ok      models     openai (gpt-4o) answers")]
#[case(&[("HALO_DEFAULT_PROVIDER", "demo")], "", "ok      models     demo (demo) answers")]
#[case(
    &[("HALO_DEFAULT_PROVIDER", "openai")],
    "anthropic:\n  secrets:\n    api_key: k\n",
    "BROKEN  models     HALO_DEFAULT_PROVIDER: the provider `openai` has no key: set `openai.secrets.api_key`"
)]
#[case(
    &[("HALO_DEFAULT_PROVIDER", "opnai")],
    "",
    "BROKEN  models     HALO_DEFAULT_PROVIDER: unknown provider `opnai`"
)]
#[case(
    &[],
    "openai:\n  secrets:\n    api_key: <<NO_SUCH_KEY>>\n",
    "BROKEN  models     openai (gpt-4o) is to answer, but `openai.secrets.api_key` is <<NO_SUCH_KEY>> and the \
     environment variable NO_SUCH_KEY is not set"
)]
#[case(&[("KEY", "k")], "openai:\n  secrets:\n    api_key: <<KEY>>\n", "ok      models     openai (gpt-4o) answers")]
fn doctor_names_the_model_that_answers_or_why_none_does(
    #[case] variables: &[(&str, &str)],
    #[case] settings: &str,
    #[case] expected: &str,
) {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    sandbox.write("settings.yaml", settings);
    let mut command = sandbox.command(&["doctor"]);
    let ran = Ran::of(&command.envs(variables.iter().copied()).output().unwrap());
    let file = sandbox.home().join("secrets/settings.yaml");
    let expected = expected.replace("{settings}", &file.display().to_string());
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line[8..].starts_with("models")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with(&expected), "{lines:?}");
    assert_eq!(ran.code, Some(i32::from(expected.starts_with("BROKEN"))));
}

#[test]
fn a_broken_provider_file_is_told_by_doctor_config_check_and_the_log() {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    sandbox.write("settings.yaml", "mine:\n  secrets:\n    api_key: k\n");
    let file = sandbox.home().join("global/models/mine.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "id: mine\nruntime: openai-caht\nmodels: []\n").unwrap();
    let problem = format!("{}:2:1: `runtime`: unknown runtime `openai-caht`; known are ", file.display());
    let mend = "; correct the file, or take it away";

    let doctor = sandbox.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    let line = doctor.stdout.lines().find(|line| line.contains("mine.yaml")).unwrap();
    assert!(line.starts_with(&format!("BROKEN  models     {problem}")) && line.ends_with(mend), "{line}");
    let check = sandbox.run(&["config", "check"]);
    assert!(check.failed().starts_with(&problem) && check.failed().ends_with(mend), "{check:?}");
    let server = sandbox.serve(&[]);
    let line = server.line_with("mine.yaml");
    assert!(line.contains("WARN") && line.contains(&problem), "{line}");
    assert!(server.end().0.success());
}

#[rstest]
#[case(
    "antropic",
    "api_key",
    Some("there is no provider `antropic`; did you mean `anthropic.secrets.api_key`?")
)]
#[case(
    "openai",
    "api_kye",
    Some("the provider `openai` takes no secret `api_kye`; did you mean `openai.secrets.api_key`?")
)]
#[case("openai", "password", Some("the provider `openai` takes no secret `password`; it takes api_key"))]
#[case("ollama", "api_key", Some("the provider `ollama` takes no secret `api_key`; it takes none"))]
#[case("openai", "api_key", None)]
#[case("weather-skill", "api_key", None)]
#[case("memo", "api_key", None)]
fn a_secret_that_no_provider_asks_for_is_told_with_the_nearest_name(
    #[case] id: &str,
    #[case] key: &str,
    #[case] expected: Option<&str>,
) {
    let sandbox = Sandbox::new();
    sandbox.write("config.yaml", "server:\n  port: 0\n");
    sandbox.write("settings.yaml", &format!("{id}:\n  secrets:\n    {key}: s3cret\n"));
    let check = sandbox.run(&["config", "check"]);
    check.good();
    let file = sandbox.home().join("secrets/settings.yaml");
    let problem = expected.map(|expected| format!("{}:3:5: {expected}", file.display()));
    let lines: Vec<String> = check.stderr.lines().map(str::to_owned).collect();
    assert_eq!(lines, problem.iter().map(|problem| format!("warning: {problem}")).collect::<Vec<_>>());
    if let Some(problem) = problem {
        let server = sandbox.serve(&[]);
        let line = server.line_with(&problem);
        assert!(line.contains("WARN") && !line.contains("s3cret"), "{line}");
        assert!(server.end().0.success());
    }
}
