//! The params that a workspace's texts and commands may use, and what of them nobody is to read.

use super::{Masks, is_plain};
use std::collections::BTreeMap;
use std::fmt;

/// `<id>.params.<key>` of the merged settings, as they were when this was made.
#[derive(Clone, Default)]
pub struct Params {
    values: BTreeMap<(String, String), String>,
    masks: Masks,
}

impl Params {
    /// These values; `secrets` are what [`Self::masks`] hides.
    pub fn new(
        values: BTreeMap<(String, String), String>,
        secrets: impl IntoIterator<Item = String>,
    ) -> Self {
        Self { values, masks: Masks::new(secrets) }
    }

    /// The value for a placeholder `<id>.params.<key>`; none for any other name, and where it is not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (id, key) = param_name(name)?;
        self.values.get(&(id.to_owned(), key.to_owned())).map(String::as_str)
    }

    /// Hides what must not be shown.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }
}

/// Shows no values.
impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Params({} values)", self.values.len())
    }
}

/// Id and key of `<id>.params.<key>`; none for what is no such name.
pub fn param_name(name: &str) -> Option<(&str, &str)> {
    let (id, key) = name.split_once(".params.")?;
    let good = !id.is_empty() && id.chars().all(is_plain) && key.chars().next().is_some_and(is_plain);
    good.then_some((id, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_params_have_a_value() {
        let values = BTreeMap::from([(("x-1".to_owned(), "a.b".to_owned()), "v".to_owned())]);
        let params = Params::new(values, ["hidden".to_owned()]);
        assert_eq!(params.get("x-1.params.a.b"), Some("v"));
        for name in
            ["x-1.params.a", "x-1.secrets.a.b", "params.a.b", ".params.a", "x.y.params.a", "general.x"]
        {
            assert_eq!(params.get(name), None, "{name}");
        }
        assert_eq!(format!("{params:?}"), "Params(1 values)");
    }
}
