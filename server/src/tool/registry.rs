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

/// What a readonly session may have where there is no sandbox for commands. Also all that a session may have in which
/// another server's agent speaks with a readonly token, whatever sandbox there is.
const READING: [&str; 5] = ["file_read", "view_image", "file_list", "grep", "glob"];

/// All tools of this build, in the order that models see them.
pub struct Registry {
    tools: Vec<(String, Arc<dyn Tool>)>,
    /// `shell_exec` as it is described below full access.
    sandboxed_shell: Arc<dyn Tool>,
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
            Arc::new(ShellExec::default()),
            Arc::new(WebFetch::default()),
        ];
        Self {
            tools: tools.into_iter().map(|tool| (tool.spec().name, tool)).collect(),
            sandboxed_shell: Arc::new(ShellExec::sandboxed()),
        }
    }

    /// The names of all tools, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|(name, _)| name.as_str())
    }

    /// The tools of a session: those that its profile names (a strict allow list; unknown names are ignored) and
    /// its level allows, in the order of the registry. `holds`: whether there is a sandbox for the commands of
    /// readonly sessions; with one they have every tool, and those that write say that they may not. `sight`: whether
    /// the model takes images. `shell_exec` stays at workspace level and says itself why it does not run.
    pub fn select(
        &self,
        names: &[String],
        access: AccessLevel,
        holds: bool,
        sight: bool,
    ) -> Vec<Arc<dyn Tool>> {
        let all = access > AccessLevel::ReadOnly || holds;
        let shown = self.pick(names, |name| all || READING.contains(&name));
        let shown = shown.filter(|(_, tool)| sight || !tool.needs_sight());
        shown.map(|(name, tool)| self.described(name, tool, access)).collect()
    }

    /// The tools of a session in which another server's agent speaks with a readonly token: those that only read.
    pub fn select_reading(&self, names: &[String]) -> Vec<Arc<dyn Tool>> {
        self.pick(names, |name| READING.contains(&name)).map(|(_, tool)| Arc::clone(tool)).collect()
    }

    fn pick(
        &self,
        names: &[String],
        allowed: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = &(String, Arc<dyn Tool>)> {
        self.tools.iter().filter(move |(name, _)| names.contains(name) && allowed(name))
    }

    fn described(&self, name: &str, tool: &Arc<dyn Tool>, access: AccessLevel) -> Arc<dyn Tool> {
        let sandboxed = access < AccessLevel::Full && name == "shell_exec";
        Arc::clone(if sandboxed { &self.sandboxed_shell } else { tool })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const ALL: [&str; 9] = [
        "file_read",
        "file_write",
        "file_edit",
        "view_image",
        "file_list",
        "grep",
        "glob",
        "shell_exec",
        "web_fetch",
    ];

    fn names_of(tools: &[Arc<dyn Tool>]) -> Vec<String> {
        tools.iter().map(|tool| tool.spec().name).collect()
    }

    fn picked(names: &[&str], access: AccessLevel, holds: bool) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        names_of(&Registry::standard().select(&names, access, holds, true))
    }

    #[rstest]
    #[case(AccessLevel::Full, false, &ALL)]
    #[case(AccessLevel::Workspace, false, &ALL)]
    #[case(AccessLevel::ReadOnly, true, &ALL)]
    #[case(AccessLevel::ReadOnly, false, &READING)]
    fn a_level_gets_its_tools_in_order(
        #[case] access: AccessLevel,
        #[case] holds: bool,
        #[case] expected: &[&str],
    ) {
        let mut all: Vec<String> = Registry::standard().names().map(Into::into).collect();
        all.reverse();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(picked(&all, access, holds), expected);
    }

    #[test]
    fn only_named_tools_are_given_and_unknown_names_are_ignored() {
        let some = ["grep", "teleport", "file_read"];
        assert_eq!(picked(&some, AccessLevel::Full, true), ["file_read", "grep"]);
        assert!(picked(&[], AccessLevel::Full, true).is_empty());
    }

    #[test]
    fn an_agent_of_another_server_with_a_readonly_token_only_reads() {
        let all = ALL.map(String::from);
        assert_eq!(names_of(&Registry::standard().select_reading(&all)), READING);
    }

    #[test]
    fn below_full_access_the_shell_does_not_advise_what_ends_with_it() {
        let registry = Registry::standard();
        let described = |access| {
            let shell = registry.select(&["shell_exec".to_owned()], access, true, true);
            shell[0].spec().description
        };
        assert!(described(AccessLevel::Full).contains("`nohup"));
        for access in [AccessLevel::Workspace, AccessLevel::ReadOnly] {
            assert!(described(access).contains("ends with it, also with nohup"));
        }
    }

    #[test]
    fn a_model_that_takes_no_images_is_not_offered_to_view_one() {
        let names = ["view_image", "grep"].map(String::from);
        let tools = Registry::standard().select(&names, AccessLevel::Full, true, false);
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
