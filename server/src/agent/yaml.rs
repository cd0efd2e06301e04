//! The format of `agent.yaml`: which keys there are, what they may hold, and where a mistake is.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::Value;
use std::fmt;
use std::path::Path;

/// A mistake in the file, with its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// From 1.
    pub line: u64,
    /// From 1.
    pub column: u64,
    /// The key that it concerns, from the top (`model.maxTokens`), as far as the text shows it.
    pub field: Option<String>,
    /// What is wrong.
    pub text: String,
}

/// What an `agent.yaml` says. A key without a value is the same as no key.
#[derive(Debug, serde::Deserialize)]
pub(super) struct AgentYaml {
    pub name: String,
    pub description: Option<String>,
    pub priority: Option<i64>,
    pub internal: Option<bool>,
    pub model: Option<ModelYaml>,
    pub system_prompt: Option<String>,
    pub context: Option<ContextYaml>,
    pub tools: Option<Vec<String>>,
    pub skills: Option<Vec<String>>,
    pub team: Option<Vec<String>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModelYaml {
    pub provider: String,
    pub id: String,
    pub endpoint: Option<String>,
    pub max_tokens: Option<u32>,
    pub prompt_caching: Option<Caching>,
    pub thinking: Option<ThinkingYaml>,
    pub verbosity: Option<String>,
    pub image: Option<bool>,
}

#[derive(Debug, serde::Deserialize)]
pub(super) struct ThinkingYaml {
    pub enabled: Option<bool>,
    pub effort: Option<String>,
    /// The old name of `effort`.
    pub budget: Option<String>,
    pub budget_tokens: Option<u32>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContextYaml {
    pub max_tokens: Option<u32>,
    pub compress_at: Option<f64>,
}

/// How long a provider keeps the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Not at all.
    Off,
    /// For as long as the provider does when not told otherwise.
    Default,
    /// For 5 minutes.
    FiveMinutes,
    /// For an hour.
    OneHour,
}

impl<'de> Deserialize<'de> for Caching {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOf;
        impl Visitor<'_> for OneOf {
            type Value = Caching;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of true, false, 5m, 1h")
            }

            fn visit_bool<E>(self, on: bool) -> Result<Caching, E> {
                Ok(if on { Caching::Default } else { Caching::Off })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Caching, E> {
                match text {
                    "5m" => Ok(Caching::FiveMinutes),
                    "1h" => Ok(Caching::OneHour),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(OneOf)
    }
}

/// Every key that has a meaning, by the key that it stands under.
const KEYS: [(&str, &[&str]); 4] = [
    (
        "",
        &[
            "name",
            "description",
            "priority",
            "internal",
            "model",
            "system_prompt",
            "context",
            "tools",
            "skills",
            "team",
        ],
    ),
    (
        "model",
        &[
            "provider",
            "id",
            "endpoint",
            "maxTokens",
            "promptCaching",
            "thinking",
            "verbosity",
            "image",
            "video",
            "audio",
        ],
    ),
    ("model.thinking", &["enabled", "effort", "budget", "budget_tokens"]),
    ("context", &["maxTokens", "compressAt"]),
];

/// Reads the file. Its size is the caller's to bound; depth and aliases are bounded.
pub(super) fn parse(text: &str) -> Result<AgentYaml, Mistake> {
    let parsed: AgentYaml = crate::yaml::from_str(text).map_err(|error| mistake(&error, text))?;
    if let Some(part) = parsed.context.as_ref().and_then(|context| context.compress_at)
        && !(part > 0.0 && part <= 1.0)
    {
        return Err(at_key(text, "compressAt", "context.compressAt", "must be above 0 and at most 1"));
    }
    Ok(parsed)
}

/// Keys without a meaning, each with the nearest that has one. `text` must have been parsed.
pub(super) fn unknown_keys(text: &str) -> Vec<String> {
    let Ok(tree) = crate::yaml::from_str::<Value>(text) else { return Vec::new() };
    let mut found = Vec::new();
    for (path, known) in KEYS {
        let section =
            path.split('.').filter(|part| !part.is_empty()).try_fold(&tree, |node, part| node.get(part));
        let Some(Value::Object(section)) = section else { continue };
        for key in section.keys().filter(|key| !known.contains(&key.as_str())) {
            let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let nearest = known
                .iter()
                .map(|candidate| {
                    (strsim::damerau_levenshtein(&key.to_lowercase(), &candidate.to_lowercase()), candidate)
                })
                .min()
                .filter(|(distance, _)| *distance <= 2);
            found.push(match nearest {
                Some((_, nearest)) => format!("unknown key `{full}`, did you mean `{nearest}`?"),
                None => format!("unknown key `{full}`"),
            });
        }
    }
    found
}

impl Mistake {
    /// The place and what is wrong, for people.
    pub fn at(&self, file: &Path) -> String {
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        format!("{}:{}:{}: {field}{}", file.display(), self.line, self.column, self.text)
    }

    /// A mistake in the value of a key of block-style YAML; `field` is the key from the top.
    pub fn at_key(source: &str, key: &str, field: &str, text: &str) -> Self {
        at_key(source, key, field, text)
    }
}

/// What the library says of a text, with its place.
pub(super) fn mistake(error: &serde_saphyr::Error, source: &str) -> Mistake {
    let error = error.without_snippet();
    let (line, column) = error.location().map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text).replace('\n', " ");
    // A missing field names itself, and stands nowhere.
    let field = if text.contains("missing field") { None } else { field_at(source, line) };
    Mistake { line, column, field, text }
}

fn at_key(source: &str, key: &str, field: &str, text: &str) -> Mistake {
    let found = source.lines().enumerate().find_map(|(line, content)| {
        let value = content.trim_start().strip_prefix(key)?.trim_start().strip_prefix(':')?.trim_start();
        Some((line as u64 + 1, (content.chars().count() - value.chars().count()) as u64 + 1))
    });
    let (line, column) = found.unwrap_or((1, 1));
    Mistake { line, column, field: Some(field.to_owned()), text: text.to_owned() }
}

/// The keys above a line of block-style YAML, from the top: `model.maxTokens`.
fn field_at(source: &str, line: u64) -> Option<String> {
    let lines: Vec<&str> = source.lines().take(usize::try_from(line).ok()?).collect();
    let mut path = Vec::new();
    let mut outer = usize::MAX;
    for content in lines.iter().rev() {
        let trimmed = content.trim_start();
        let indent = content.len() - trimmed.len();
        if indent >= outer || trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        match trimmed.split_once(':') {
            Some((key, _)) if key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') => {
                path.push(key);
                outer = indent;
            }
            // A list may stand as far out as its key.
            _ => outer = outer.min(indent + 1),
        }
        if outer == 0 {
            break;
        }
    }
    path.reverse();
    (!path.is_empty()).then(|| path.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn every_key_is_read() {
        let text = "name: A\ndescription: d\npriority: 7\ninternal: true\nsystem_prompt: |\n  Be short.\n\
            model:\n  provider: p\n  id: m\n  endpoint: https://x\n  maxTokens: 100\n  promptCaching: 1h\n  \
            thinking: {enabled: true, effort: high, budget_tokens: 9}\n  verbosity: low\n  image: false\n\
            context:\n  maxTokens: 200000\n  compressAt: 0.8\ntools: [grep]\nskills: [s]\nteam: [t]\n";
        let yaml = parse(text).unwrap();
        assert_eq!((&yaml.name[..], yaml.priority, yaml.internal), ("A", Some(7), Some(true)));
        assert_eq!(yaml.system_prompt.as_deref(), Some("Be short.\n"));
        let model = yaml.model.unwrap();
        assert_eq!(
            (model.max_tokens, model.prompt_caching, model.image),
            (Some(100), Some(Caching::OneHour), Some(false))
        );
        let thinking = model.thinking.unwrap();
        assert_eq!(
            (thinking.enabled, thinking.effort.as_deref(), thinking.budget_tokens),
            (Some(true), Some("high"), Some(9))
        );
        let context = yaml.context.unwrap();
        assert_eq!((context.max_tokens, context.compress_at), (Some(200_000), Some(0.8)));
        assert_eq!(
            (yaml.tools.unwrap(), yaml.skills.unwrap(), yaml.team.unwrap()),
            (vec!["grep".into()], vec!["s".into()], vec!["t".into()])
        );
        assert_eq!(unknown_keys(text), [""; 0]);
    }

    #[test]
    fn keys_without_a_value_count_as_absent() {
        let yaml = parse("name: A\nmodel:\ntools:\nskills: ~\ncontext:\n").unwrap();
        assert!(
            yaml.model.is_none() && yaml.tools.is_none() && yaml.skills.is_none() && yaml.context.is_none()
        );
    }

    #[rstest]
    #[case("name: A\npriority: high\n", (2, 11), Some("priority"))]
    #[case("name: A\nmodel:\n  provider: p\n  id: m\n  # c\n  maxTokens: many\n", (6, 14), Some("model.maxTokens"))]
    #[case("name: A\nmodel:\n  provider: p\n  id: m\n  thinking:\n    enabled: maybe\n", (6, 14), Some("model.thinking.enabled"))]
    #[case("name: A\nmodel:\n  provider: p\n  id: m\n  promptCaching: 2h\n", (5, 3), Some("model.promptCaching"))]
    #[case("name: A\ntools:\n- grep\n- [x]\n", (4, 3), Some("tools"))]
    #[case("name: A\ncontext:\n  compressAt: 9\n", (3, 15), Some("context.compressAt"))]
    #[case("name: A\nname: B\n", (2, 1), Some("name"))]
    #[case("description: x\n", (1, 1), None)]
    fn a_mistake_has_its_place_and_its_field(
        #[case] text: &str,
        #[case] place: (u64, u64),
        #[case] field: Option<&str>,
    ) {
        let mistake = parse(text).unwrap_err();
        assert_eq!(((mistake.line, mistake.column), mistake.field.as_deref()), (place, field), "{mistake:?}");
        assert!(!mistake.text.is_empty() && !mistake.text.contains("line "), "{mistake:?}");
    }

    #[test]
    fn a_missing_field_is_named() {
        assert!(parse("priority: 1\n").unwrap_err().text.contains("name"));
        let text = parse("name: A\nmodel:\n  provider: p\n").unwrap_err().text;
        assert!(text.contains("`id`"), "{text}");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_neighbour() {
        let text = "name: A\nprioritty: 1\nmodel:\n  provider: p\n  id: m\n  maxtokens: 5\nzzz: 1\n";
        assert_eq!(
            unknown_keys(text),
            [
                "unknown key `prioritty`, did you mean `priority`?",
                "unknown key `zzz`",
                "unknown key `model.maxtokens`, did you mean `maxTokens`?"
            ]
        );
    }
}
