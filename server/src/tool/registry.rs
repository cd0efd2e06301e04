//! Which tools there are, and which of them a session gets.

use super::Tool;
use super::file_edit::FileEdit;
use super::file_list::FileList;
use super::file_read::FileRead;
use super::file_write::FileWrite;
use super::glob::Glob;
use super::grep::Grep;
use super::shell_exec::ShellExec;
use super::view_image::ViewImage;
use super::web_fetch::WebFetch;
use crate::access::AccessLevel;
use std::sync::Arc;

/// What a readonly session may have while the operating system gives no sandbox.
const READONLY: [&str; 5] = ["file_read", "view_image", "file_list", "grep", "glob"];

/// All tools of this build, in the order that models see them.
pub struct Registry {
    tools: Vec<(String, Arc<dyn Tool>)>,
}

impl Registry {
    /// The tools that are built in.
    pub fn standard() -> Self {
        let tools: [Arc<dyn Tool>; 9] = [
            Arc::new(FileRead),
            Arc::new(FileWrite),
            Arc::new(FileEdit),
            Arc::new(ViewImage),
            Arc::new(FileList),
            Arc::new(Grep),
            Arc::new(Glob),
            Arc::new(ShellExec),
            Arc::new(WebFetch::default()),
        ];
        Self { tools: tools.into_iter().map(|tool| (tool.spec().name, tool)).collect() }
    }

    /// The names of all tools, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|(name, _)| name.as_str())
    }

    /// The tools of a session: those that its profile names (a strict allow list; unknown names are ignored) and
    /// its level allows, in the order of the registry; with `sight`, also those for a model that takes images.
    /// `shell_exec` stays at workspace level and says itself why
    /// it does not run.
    pub fn select(&self, names: &[String], access: AccessLevel, sight: bool) -> Vec<Arc<dyn Tool>> {
        self.tools
            .iter()
            .filter(|(name, _)| names.contains(name))
            .filter(|(name, _)| access > AccessLevel::ReadOnly || READONLY.contains(&name.as_str()))
            .filter(|(_, tool)| sight || !tool.needs_sight())
            .map(|(_, tool)| Arc::clone(tool))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn picked(names: &[&str], access: AccessLevel) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Registry::standard().select(&names, access, true).iter().map(|tool| tool.spec().name).collect()
    }

    #[rstest]
    #[case(AccessLevel::Full, &["file_read", "file_write", "file_edit", "view_image", "file_list", "grep", "glob", "shell_exec", "web_fetch"])]
    #[case(AccessLevel::Workspace, &["file_read", "file_write", "file_edit", "view_image", "file_list", "grep", "glob", "shell_exec", "web_fetch"])]
    #[case(AccessLevel::ReadOnly, &["file_read", "view_image", "file_list", "grep", "glob"])]
    fn a_level_gets_its_tools_in_order(#[case] access: AccessLevel, #[case] expected: &[&str]) {
        let mut all: Vec<String> = Registry::standard().names().map(Into::into).collect();
        all.reverse();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(picked(&all, access), expected);
    }

    #[test]
    fn only_named_tools_are_given_and_unknown_names_are_ignored() {
        assert_eq!(picked(&["grep", "teleport", "file_read"], AccessLevel::Full), ["file_read", "grep"]);
        assert!(picked(&[], AccessLevel::Full).is_empty());
    }

    #[test]
    fn a_model_that_takes_no_images_is_not_offered_to_view_one() {
        let names = ["view_image", "grep"].map(String::from);
        let tools = Registry::standard().select(&names, AccessLevel::Full, false);
        assert_eq!(tools.iter().map(|tool| tool.spec().name).collect::<Vec<_>>(), ["grep"]);
    }

    #[test]
    fn every_tool_describes_an_object_of_arguments() {
        for (name, tool) in Registry::standard().tools {
            let spec = tool.spec();
            assert_eq!(spec.parameters["type"], "object", "{name}");
            assert!(!spec.description.is_empty());
            for required in spec.parameters["required"].as_array().into_iter().flatten() {
                assert!(spec.parameters["properties"][required.as_str().unwrap()].is_object(), "{name}");
            }
        }
    }
}
