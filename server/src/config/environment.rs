//! The environment variables, read once and handed in, so that tests need not touch the process.

use std::collections::HashMap;

/// A snapshot of environment variables. Variables that are not UTF-8 are left out.
#[derive(Clone, Default)]
pub struct Environment(HashMap<String, String>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// The value of a variable; an empty one counts as unset.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Replaces every `<<NAME>>` by the variable of that name. A name that is unset stays as it is and is
    /// reported to `unset`.
    pub fn expand(&self, text: &str, mut unset: impl FnMut(&str)) -> String {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((start, name)) = next_name(rest) {
            expanded.push_str(&rest[..start]);
            let end = start + 2 + name.len() + 2;
            if let Some(value) = self.get(name) {
                expanded.push_str(value);
            } else {
                unset(name);
                expanded.push_str(&rest[start..end]);
            }
            rest = &rest[end..];
        }
        expanded.push_str(rest);
        expanded
    }

    /// The values that [`Self::expand`] puts into the text.
    pub fn values_in(&self, text: &str) -> Vec<String> {
        let mut values = Vec::new();
        let mut rest = text;
        while let Some((start, name)) = next_name(rest) {
            values.extend(self.get(name).map(str::to_owned));
            rest = &rest[start + 2 + name.len() + 2..];
        }
        values
    }
}

/// Where the next `<<NAME>>` begins, and the name.
fn next_name(text: &str) -> Option<(usize, &str)> {
    let mut from = 0;
    while let Some(found) = text[from..].find("<<") {
        let start = from + found;
        let name = text[start + 2..].split_once(">>").map(|(name, _)| name).filter(|name| is_name(name));
        if let Some(name) = name {
            return Some((start, name));
        }
        from = start + 1;
    }
    None
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("<<KEY>>", "sk-1", None)]
    #[case("Bearer <<KEY>>!", "Bearer sk-1!", None)]
    #[case("<<KEY>><<KEY>>", "sk-1sk-1", None)]
    #[case("<<<KEY>>", "<sk-1", None)]
    #[case("<<GONE>>", "<<GONE>>", Some("GONE"))]
    #[case("<<EMPTY>>", "<<EMPTY>>", Some("EMPTY"))]
    #[case("<<not a name>>", "<<not a name>>", None)]
    #[case("<<KEY", "<<KEY", None)]
    #[case("<<>>", "<<>>", None)]
    #[case("<<1A>>", "<<1A>>", None)]
    fn a_placeholder_becomes_the_variable_and_stays_literal_when_unset(
        #[case] text: &str,
        #[case] expanded: &str,
        #[case] unset: Option<&str>,
    ) {
        let environment = Environment::from_iter([("KEY", "sk-1"), ("EMPTY", "")]);
        let mut missing = None;
        assert_eq!(environment.expand(text, |name| missing = Some(name.to_owned())), expanded);
        assert_eq!(missing.as_deref(), unset);
        let used = environment.values_in(text);
        assert_eq!(used, vec!["sk-1"; text.matches("<<KEY>>").count()]);
    }

    proptest! {
        #[test]
        fn text_without_placeholders_comes_back_as_it_was(text in "[<>a-z_é ]{0,30}") {
            prop_assert_eq!(Environment::default().expand(&text, |_| ()), text);
        }
    }
}
