//! What a body or a frame must look like, as JSON with holes. Everything is compared exactly, names of fields
//! included, but for this:
//!
//! | in the pattern | stands for |
//! |---|---|
//! | `"<id>"` | the id of a row |
//! | `"<ms>"` | a time in milliseconds since the Unix epoch |
//! | `"<int>"`, `"<number>"` | a whole number from 0 on, any number |
//! | `"<text>"`, `"<any>"` | text that is not empty, any JSON |
//! | `"<account>"`, `"<token>"`, `"<prefix>"` | the id of an account, a token, the first 6 characters of one |
//! | `"<event>"` | a place in a run |
//! | `"<session>"`, `"<session:NAME>"` | a session that the server named; with a name the same one everywhere |
//! | `"<call:NAME>"` | the id of a tool call or of a model call, the same one everywhere |
//! | `"<has:PART>"`, `"<begins:PART>"`, `"<ends:PART>"` | text around a part |
//! | a name that ends with `?` | a field that may be absent |
//! | `{NAME}` in a text | what the world says for NAME, or what `<session:NAME>` found |

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What the `{NAME}` of patterns and requests stand for.
pub type Names = BTreeMap<String, String>;

/// The text with its names filled in.
pub fn fill(text: &str, names: &Names) -> String {
    let filled =
        |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
    names.iter().fold(text.to_owned(), filled)
}

/// The same for every text of a JSON value.
pub fn fill_json(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => fill(text, names).into(),
        Value::Array(items) => items.iter().map(|item| fill_json(item, names)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), fill_json(value, names))).collect()
        }
        other => other.clone(),
    }
}

/// Where `got` is not what `pattern` says; the place is a path into the JSON.
pub fn compare(pattern: &Value, got: &Value, names: &mut Names) -> Result<(), String> {
    at("$", pattern, got, names)
}

fn at(place: &str, pattern: &Value, got: &Value, names: &mut Names) -> Result<(), String> {
    match (pattern, got) {
        (Value::Object(pattern), Value::Object(got)) => object(place, pattern, got, names),
        (Value::Array(pattern), Value::Array(got)) => {
            if pattern.len() != got.len() {
                return Err(format!("{place}: {} items instead of {}", got.len(), pattern.len()));
            }
            let mut pairs = pattern.iter().zip(got).enumerate();
            pairs
                .try_for_each(|(index, (pattern, got))| at(&format!("{place}[{index}]"), pattern, got, names))
        }
        (Value::String(text), got) => {
            let text = fill(text, names);
            let hole = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
            let fits = match hole {
                Some(hole) => fits(hole, got, names),
                None => got.as_str() == Some(text.as_str()),
            };
            if fits { Ok(()) } else { Err(format!("{place}: {got} instead of {text}")) }
        }
        (pattern, got) if pattern == got => Ok(()),
        (pattern, got) => Err(format!("{place}: {got} instead of {pattern}")),
    }
}

fn object(
    place: &str,
    pattern: &Map<String, Value>,
    got: &Map<String, Value>,
    names: &mut Names,
) -> Result<(), String> {
    for (name, pattern) in pattern {
        let (name, optional) = name.strip_suffix('?').map_or((name.as_str(), false), |name| (name, true));
        match got.get(name) {
            Some(got) => at(&format!("{place}.{name}"), pattern, got, names)?,
            None if optional => {}
            None => return Err(format!("{place}: no field {name}")),
        }
    }
    let known = |name: &str| pattern.contains_key(name) || pattern.contains_key(&format!("{name}?"));
    match got.keys().find(|name| !known(name)) {
        Some(extra) => Err(format!("{place}: a field {extra} that nobody asked for")),
        None => Ok(()),
    }
}

fn fits(hole: &str, got: &Value, names: &mut Names) -> bool {
    let (kind, name) = hole.split_once(':').map_or((hole, None), |(kind, name)| (kind, Some(name)));
    let text = got.as_str().unwrap_or_default();
    let fits = match kind {
        "any" => true,
        "number" => got.is_number(),
        "int" => got.is_u64(),
        "ms" => got.as_u64().is_some_and(|ms| (1_500_000_000_000..100_000_000_000_000).contains(&ms)),
        "text" | "call" => !text.is_empty(),
        "id" => id(text),
        "event" => text.split_once('.').is_some_and(|(run, seq)| is_word(run) && seq.parse::<u64>().is_ok()),
        "account" => text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "token" => text.len() == 32 && is_base64url(text),
        "prefix" => text.len() == 6 && is_base64url(text),
        "session" => session(text),
        "has" => return name.is_some_and(|part| text.contains(part)),
        "begins" => return name.is_some_and(|part| text.starts_with(part)),
        "ends" => return name.is_some_and(|part| text.ends_with(part)),
        other => panic!("no such hole: <{other}>"),
    };
    let same = |name: &str| names.entry(name.to_owned()).or_insert_with(|| text.to_owned()) == text;
    fits && name.is_none_or(same)
}

fn id(text: &str) -> bool {
    let parts = text.strip_prefix("m_").and_then(|rest| rest.split_once('_'));
    parts.is_some_and(|(time, counter)| is_word(time) && is_word(counter))
}

fn session(text: &str) -> bool {
    let mut parts = text.split('_');
    parts.next() == Some("web")
        && parts.next().is_some_and(|account| fits("account", &account.into(), &mut Names::new()))
        && parts.next().is_some_and(is_word)
        && parts.next().is_some_and(is_word)
        && parts.next().is_none()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

fn is_base64url(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
