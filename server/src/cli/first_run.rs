//! The first start: what a fresh home needs is made and shown once. A home is fresh until its `config.yaml`
//! exists, which is written last, so that an interrupted first start is done again.

use super::token;
use super::{Place, block_on, terminal};
use crate::config::effective::Effective;
use crate::config::live::Made;
use crate::config::password::AdminPassword;
use crate::config::{Home, Live, edit, password};
use crate::store::Database;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// What a new `settings.yaml` holds: how to fill it.
const SETTINGS_YAML: &str = "\
# Keys of model providers, and how halo behaves. A change counts at once. Take the # away to use an example.
# `halo config check` says what is wrong here, `halo doctor` which model answers.
#
#anthropic:
#  secrets:
#    api_key: sk-ant-...
#
#openai:
#  secrets:
#    api_key: <<OPENAI_API_KEY>>  # taken from the environment variable
";

/// What may have to be made.
pub struct FirstRun {
    fresh: bool,
    made: Made,
}

impl FirstRun {
    /// Makes the secrets that count where nothing else sets them. Writes nothing yet. A home that has a
    /// configuration without a password keeps it that way: its owner may want no admin at all.
    pub fn plan(home: &Home) -> Self {
        let fresh = !home.config_yaml().exists();
        let mut made = vec![("server.jwt_secret", password::generate_jwt_secret())];
        if fresh {
            made.push(("server.password", password::generate()));
        }
        Self { fresh, made }
    }

    /// The secrets, for [`Live::load`].
    pub fn made(&self) -> Made {
        self.made.clone()
    }

    /// Stores what of it counts, and makes a token on a fresh home; answers the text that shows both. Runs beside
    /// the server, which works with the secrets already.
    pub async fn finish(
        self,
        home: Home,
        live: &Live,
        channels: &Database,
        workspace: PathBuf,
        address: (String, u16),
    ) -> anyhow::Result<Option<String>> {
        let effective = live.current();
        let jwt_secret =
            effective.jwt_secret.clone().filter(|_| effective.is_of_first_start("server.jwt_secret"));
        if !self.fresh {
            if let Some(secret) = jwt_secret {
                add_jwt_secret(home, secret).await?;
            }
            return Ok(None);
        }
        let token = token::create_full(channels, workspace.clone(), "first start").await?;
        let password = new_password(&effective);
        let plain = password.clone();
        tokio::task::spawn_blocking(move || {
            edit::write_new_private(&home.settings_yaml(), SETTINGS_YAML)?;
            write_config(&home, plain.as_ref(), jwt_secret.as_ref())
        })
        .await??;
        Ok(Some(shown(&address, password.as_ref(), &token, &workspace)))
    }
}

/// The password that the first start has made, unless the environment brings one.
fn new_password(effective: &Effective) -> Option<SecretString> {
    match &effective.password {
        AdminPassword::FirstStart(plain) => Some(plain.clone()),
        _ => None,
    }
}

async fn add_jwt_secret(home: Home, secret: SecretString) -> anyhow::Result<()> {
    let write = move || edit::set(&home.config_yaml(), "server", "jwt_secret", secret.expose_secret());
    if let Err(error) = tokio::task::spawn_blocking(write).await? {
        tracing::warn!(
            "the secret that signs cookies cannot be stored, so logins end with this server: {error}"
        );
    }
    Ok(())
}

fn write_config(
    home: &Home,
    password: Option<&SecretString>,
    jwt: Option<&SecretString>,
) -> anyhow::Result<()> {
    let hash = password.map(|plain| password::hash(plain.expose_secret())).transpose()?;
    let mut values = Vec::new();
    if let Some(hash) = &hash {
        values.push((
            "password",
            hash.as_str(),
            "The hash of the admin password; set another with `halo password`.",
        ));
    }
    if let Some(jwt) = jwt {
        values.push((
            "jwt_secret",
            jwt.expose_secret(),
            "Signs the admin's cookie; a new one ends every login.",
        ));
    }
    edit::write_private(&home.config_yaml(), &edit::new_config(&values))?;
    Ok(())
}

fn shown(
    (host, port): &(String, u16),
    password: Option<&SecretString>,
    token: &str,
    workspace: &Path,
) -> String {
    let command = std::env::current_exe().map_or_else(|_| "halo".to_owned(), |exe| exe.display().to_string());
    let port = port.to_string();
    let zed = json!({
        "halo": {
            "type": "custom",
            "command": command,
            "args": ["acp", "--host", host, "--port", port],
            "env": {"HALO_ACP_TOKEN": token},
        }
    });
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let password = match password {
        Some(plain) => plain.expose_secret(),
        None => "(the one in HALO_PASSWORD)",
    };
    let shell_command = for_shell(&command);
    format!(
        "\nFirst start: here is what you need. It is shown only this once.\n\
         \n  url             http://{authority}\
         \n  admin password  {password}\
         \n  token           {token}\
         \n                  full access, workspace {}\
         \n\n  For an editor (any ACP client):\n    {shell_command} acp --host {host} --port {port} --token {token}\
         \n  For Zed, in settings.json below \"agent_servers\":\n    {zed}\n",
        workspace.display()
    )
}

/// A path as a shell takes it.
fn for_shell(path: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@:,=".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

/// The host under which a client on this machine reaches an address that the server listens on.
pub fn reachable(address: SocketAddr) -> (String, u16) {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    };
    (host, address.port())
}

/// Does all of the first start without a server. Answers whether there was anything to do.
pub fn prepare_now(place: &Place, home: &Home, live_args: super::server::Prepared) -> anyhow::Result<bool> {
    let first = FirstRun::plan(home);
    let fresh = first.fresh;
    let super::server::Prepared { overrides, workspace } = live_args;
    let (live, _) = Live::load(home, place.environment.clone(), overrides, first.made())?;
    let effective = live.current();
    let host = if effective.host == "0.0.0.0" { "127.0.0.1" } else { &effective.host };
    let address = (host.to_owned(), effective.port);
    block_on(async {
        let channels = token::open(home)?;
        let result = first.finish(home.clone(), &live, &channels, workspace, address).await;
        channels.close().await;
        if let Some(text) = result? {
            terminal::tell(&text);
        }
        Ok(())
    })?;
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::for_shell;

    #[test]
    fn a_path_that_a_shell_would_take_apart_is_quoted() {
        assert_eq!(for_shell("/usr/bin/halo"), "/usr/bin/halo");
        assert_eq!(for_shell("/my dir/it's/halo"), r"'/my dir/it'\''s/halo'");
    }
}
