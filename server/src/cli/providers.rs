//! What the settings and the files of model providers say together: which model answers, and which file or key is
//! wrong. The configuration knows no providers and the providers no settings; the commands that look at both
//! come here. Calls nobody.

use crate::agent::profile::Profiles;
use crate::config::sections::Sections;
use crate::config::{Effective, Environment, Home, Problem, Severity};
use crate::model::registry::{BuildError, CallSettings, ModelChoice, ProviderInfo, Registry};
use secrecy::{ExposeSecret, SecretString};

/// What answers an agent that names no model of its own.
pub enum Answering {
    /// This model, and its key is there.
    Model(ModelChoice),
    /// Nobody has a key, so the demo does.
    Demo,
    /// Nothing, or nothing good: why, and the mend.
    Broken(String),
    /// Nothing, for a fault that [`broken_files`] tells already.
    BrokenFile,
}

/// Every provider file that cannot be used.
pub fn broken_files(home: &Home) -> Vec<Problem> {
    let providers = Registry::new(home.models_dir()).providers();
    let faults = providers.into_iter().filter_map(|info| {
        const MEND: &str = "correct the file, or take it away";
        Some(match info.error? {
            BuildError::BrokenProvider(fault) => {
                let at = fault.at.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
                let field = fault.field.map_or_else(String::new, |field| format!("`{field}`: "));
                let place = format!("{}{at}", fault.file.display());
                Problem::of(Severity::Error, place, format!("{field}{}; {MEND}", fault.message))
            }
            other => Problem::of(Severity::Error, info.id, format!("{other}; {MEND}")),
        })
    });
    faults.collect()
}

/// Every secret that no provider will ask for: its id is almost a provider's, or it is a provider's and the key is
/// not. Other ids may be those of skills.
pub fn unknown_secrets(home: &Home, sections: &Sections) -> Vec<Problem> {
    let providers = Registry::new(home.models_dir()).providers();
    let file = home.settings_yaml();
    let faults = sections.secret_places().filter_map(|(id, key, place)| {
        let text = match providers.iter().find(|info| info.id == id) {
            Some(info) if info.error.is_some() || info.secrets.iter().any(|known| known == key) => {
                return None;
            }
            Some(info) => {
                let hint = match nearest(key, info.secrets.iter().map(String::as_str)) {
                    Some(known) => format!("did you mean `{id}.secrets.{known}`?"),
                    None if info.secrets.is_empty() => "it takes none".to_owned(),
                    None => format!("it takes {}", info.secrets.join(", ")),
                };
                format!("the provider `{id}` takes no secret `{key}`; {hint}")
            }
            None => {
                let with_secrets = providers.iter().filter(|info| !info.secrets.is_empty());
                let known = nearest(id, with_secrets.map(|info| info.id.as_str()))?;
                format!("there is no provider `{id}`; did you mean `{known}.secrets.{key}`?")
            }
        };
        Some(Problem::at(Severity::Warning, &file, place, text))
    });
    faults.collect()
}

/// The known name that differs from an unknown one by a slip of the fingers: at most two, and fewer in a short name.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let slips = |known: &str| strsim::damerau_levenshtein(name, known);
    let most = |known: &str| (known.chars().count() / 3).min(2);
    known.filter(|known| slips(known) <= most(known)).min_by_key(|known| slips(known))
}

/// Which model answers, as a run without a workspace of its own settings would choose it.
pub fn answering(home: &Home, config: &Effective, environment: &Environment) -> Answering {
    let registry = Registry::new(home.models_dir());
    let secret = |provider: &str, key: &str| -> Option<SecretString> { config.secret(provider, key, None) };
    let (choice, source) = match &config.default_provider {
        Some(provider) => (registry.default_choice(provider), "HALO_DEFAULT_PROVIDER: "),
        None => match registry.first_configured(&secret) {
            Some(choice) => (Ok(choice), ""),
            None => return Answering::Demo,
        },
    };
    let built = choice.and_then(|choice| {
        registry.build(&choice, &secret, &CallSettings::default())?;
        Ok(choice)
    });
    match built {
        Ok(choice) => match unset_variable(&registry, &choice.provider, config, environment) {
            Some((key, variable)) => Answering::Broken(format!(
                "{} ({}) is to answer, but `{}.secrets.{key}` is <<{variable}>> and the environment variable \
                 {variable} is not set; set it where the server starts, or write the key into {}",
                choice.provider,
                choice.id,
                choice.provider,
                home.settings_yaml().display()
            )),
            None => Answering::Model(choice),
        },
        Err(BuildError::BrokenProvider(_)) => Answering::BrokenFile,
        Err(error) => Answering::Broken(format!("{source}{error}")),
    }
}

/// For every provider that the answering model or an agent of the home uses and that is called with AWS credentials
/// other than the settings': its id, and what was found in words, or why nothing. Waits at most 2 s for each.
pub async fn aws_credentials(
    home: &Home,
    config: &Effective,
    answering: Option<&ModelChoice>,
) -> Vec<(String, Result<String, String>)> {
    let registry = Registry::new(home.models_dir());
    let secret = |provider: &str, key: &str| config.secret(provider, key, None);
    // A home is no workspace, so only its own agents are found.
    let agents = Profiles::new(home.agents_dir()).visible(home.path(), &[]).agents;
    let chosen = agents.into_iter().filter_map(|agent| agent.model).map(|model| ModelChoice {
        provider: model.provider,
        id: model.id,
        endpoint: model.endpoint,
        ..ModelChoice::default()
    });
    let mut looked: Vec<(String, Option<String>)> = Vec::new();
    let mut found = Vec::new();
    for choice in answering.cloned().into_iter().chain(chosen) {
        let place = (choice.provider.clone(), choice.endpoint.clone());
        if looked.contains(&place) {
            continue;
        }
        looked.push(place);
        if let Some(look) = registry.aws_credentials(&choice, &secret) {
            found.push((choice.provider, look.await));
        }
    }
    found
}

/// The name of the first of a provider's secrets that waits for a variable, and the variable.
fn unset_variable(
    registry: &Registry,
    provider: &str,
    config: &Effective,
    environment: &Environment,
) -> Option<(String, String)> {
    let info = registry.providers().into_iter().find(|info| info.id == provider)?;
    info.secrets.into_iter().find_map(|key| {
        let value = config.secret(provider, &key, None)?;
        let mut unset = None;
        environment.expand(value.expose_secret(), |name| unset = Some(name.to_owned()));
        unset.map(|variable| (key, variable))
    })
}

/// How it stands with the key of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// There is none to be had.
    NotNeeded,
    /// None is set, and the provider may do without.
    Optional,
    /// None is set, so the provider cannot be called.
    Missing,
    /// It is a placeholder for this variable, which is not set.
    Unset(String),
    /// It is set.
    Set,
}

impl KeyState {
    /// Looks the key up as a run without a workspace of its own settings would.
    pub fn of(info: &ProviderInfo, config: &Effective, environment: &Environment) -> Self {
        let Some(key) = &info.secret else { return Self::NotNeeded };
        let value = config.secret(&info.id, key, None);
        let Some(value) = value.filter(|value| !value.expose_secret().trim().is_empty()) else {
            let optional = info.secret_is_optional || info.takes_aws_credentials;
            return if optional { Self::Optional } else { Self::Missing };
        };
        let mut unset = None;
        environment.expand(value.expose_secret(), |name| unset = Some(name.to_owned()));
        unset.map_or(Self::Set, Self::Unset)
    }

    /// One word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotNeeded => "none",
            Self::Optional => "optional",
            Self::Missing => "missing",
            Self::Unset(_) => "unset",
            Self::Set => "set",
        }
    }
}

impl std::fmt::Display for KeyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotNeeded => f.write_str("needs none"),
            Self::Unset(variable) => write!(f, "<<{variable}>>, not set"),
            other => f.write_str(other.word()),
        }
    }
}
