//! Settings in shell commands: `{{<id>.params.<key>}}` becomes the value before the command is looked at and run, and
//! no secret comes back in what it prints. A session that only reads gets no values. A param that is not set stays as
//! typed: the command must do without.

use super::{Context, Output};
use crate::access::AccessLevel;
use crate::placeholder;
use serde_json::{Map, Value};

/// The arguments with the values in the command.
pub fn filled(mut input: Map<String, Value>, context: &Context) -> Map<String, Value> {
    if context.access > AccessLevel::ReadOnly
        && let Some(Value::String(command)) = input.get_mut("command")
        && command.contains("{{")
    {
        *command = placeholder::fill(command, |name| context.params.get(name).map(str::to_owned));
    }
    input
}

/// The answer without secrets: the whole of what was kept is looked at, so that none is overseen that came in pieces.
pub fn masked(output: Output, context: &Context) -> Output {
    Output { text: context.params.masks().hide(output.text), ..output }
}

#[cfg(test)]
mod tests {
    use super::super::shell_exec::ShellExec;
    use super::super::testing::Place;
    use super::*;
    use crate::placeholder::Params;
    use serde_json::json;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn place(access: AccessLevel) -> Place {
        let mut place = Place::with_access(access);
        let value = |key: &str, value: &str| (("x".to_owned(), key.to_owned()), value.to_owned());
        let values = BTreeMap::from([
            value("who", "the world"),
            value("pin", "s3cr3t-pin"),
            value("all", "/"),
            value("env", "<<HOME>>"),
        ]);
        place.context.params = Arc::new(Params::new(values, ["s3cr3t-pin".to_owned()]));
        place
    }

    #[tokio::test]
    async fn a_command_gets_params_and_its_output_no_secrets() {
        let place = place(AccessLevel::Full);
        let shell = ShellExec::default();
        let run = |command: &'static str| place.call(&shell, json!({ "command": command }));
        assert_eq!(run("echo 'hello {{x.params.who}}'").await.text.trim(), "hello the world");
        assert_eq!(run("echo {{ x.params.pin }}").await.text.trim(), "****");
        // In pieces, as far as the pipe goes.
        let pieces = "p='{{x.params.pin}}'; printf %s \"${p:0:4}\"; sleep 0.05; printf %s \"${p:4}\"";
        assert_eq!(run(pieces).await.text.trim(), "****");
        assert_eq!(run("echo '{{x.params.pin}}' | tr a-z A-Z").await.text.trim(), "S3CR3T-PIN");
        let literal = run("echo '{{x.params.none}} {{x.secrets.pin}} {{general.y}} <<HOME>>'").await.text;
        assert_eq!(literal.trim(), "{{x.params.none}} {{x.secrets.pin}} {{general.y}} <<HOME>>");
    }

    #[tokio::test]
    async fn what_a_value_makes_of_a_command_is_judged_and_no_refusal_tells_a_secret() {
        let place = place(AccessLevel::Full);
        let refused = place.err(&ShellExec::default(), json!({"command": "rm -rf {{x.params.all}}"})).await;
        assert!(refused.contains("rm"), "{refused}");
        let failed = place.ok(&ShellExec::default(), json!({"command": "{{x.params.pin}}"})).await;
        assert!(failed.contains("****") && !failed.contains("s3cr3t"), "{failed}");
    }

    #[test]
    fn a_session_that_only_reads_gets_no_values() {
        let place = place(AccessLevel::ReadOnly);
        let input = json!({"command": "echo {{x.params.who}}"});
        let Value::Object(input) = input else { panic!() };
        assert_eq!(filled(input.clone(), &place.context), input);
    }
}
