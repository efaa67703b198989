//! The options of the docker provider, read from `ComputeConfig.options`.

use super::PROVIDER;
use serde_json::{Map, Value};
use stead_types::ProvisionError;

/// Every option there is, for the error about one that is not.
const KNOWN: [&str; 11] = [
    "cap_add",
    "cap_drop",
    "i_accept_weaker_isolation",
    "image_pull_policy",
    "network_mode",
    "pid_mode",
    "privileged",
    "read_only",
    "registry_auth",
    "security_opt",
    "shm_size",
];

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PullPolicy {
    /// Not at all: it is there or it is an error.
    Never,
    /// When it is not there.
    #[default]
    IfMissing,
    /// Each time.
    Always,
}

/// How to log in to the image's registry. The password itself is not in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryAuth {
    /// The user.
    pub username: String,
    /// The name of the secret that is the password.
    pub password_secret: String,
}

/// The network of a container, when the options choose it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkMode {
    /// None but its own loopback.
    None,
    /// The engine's default bridge.
    Bridge,
    /// The host's own.
    Host,
    /// One that somebody made.
    Named(String),
}

/// One entry of `security_opt` that is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecurityOpt {
    /// The default, said once more.
    NoNewPrivileges,
    /// No filter of system calls.
    SeccompUnconfined,
    /// No AppArmor profile.
    AppArmorUnconfined,
    /// No SELinux label.
    LabelDisable,
}

/// The options, typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// When the image is pulled.
    pub pull_policy: PullPolicy,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// Capabilities taken away, without `CAP_`, upper case; `ALL` is all.
    pub cap_drop: Vec<String>,
    /// Capabilities given, without `CAP_`, upper case.
    pub cap_add: Vec<String>,
    /// A privileged container.
    pub privileged: bool,
    /// The network; `None` leaves it to `ComputeConfig.network`.
    pub network_mode: Option<NetworkMode>,
    /// Whether the host's processes are seen.
    pub host_pid: bool,
    /// Security options.
    pub security_opt: Vec<SecurityOpt>,
    /// Bytes of `/dev/shm`.
    pub shm_size: Option<i64>,
    /// How to log in to the registry.
    pub registry_auth: Option<RegistryAuth>,
    /// Whether what weakens the isolation is wanted.
    pub accepts_weaker: bool,
}

impl Options {
    /// Reads the options. What is unknown or has another type is an error with its path.
    pub fn parse(options: &Map<String, Value>) -> Result<Self, ProvisionError> {
        let mut parsed = Self::default();
        for (name, value) in options {
            parsed.take(name, value)?;
        }
        Ok(parsed)
    }

    fn take(&mut self, name: &str, value: &Value) -> Result<(), ProvisionError> {
        match name {
            "image_pull_policy" => self.pull_policy = pull_policy(name, value)?,
            "read_only" => self.read_only = boolean(name, value)?,
            "cap_drop" => self.cap_drop = capabilities(name, value)?,
            "cap_add" => self.cap_add = capabilities(name, value)?,
            "privileged" => self.privileged = boolean(name, value)?,
            "network_mode" => self.network_mode = Some(network_mode(name, value)?),
            "pid_mode" => self.host_pid = pid_mode(name, value)?,
            "security_opt" => self.security_opt = security_opts(name, value)?,
            "shm_size" => self.shm_size = Some(bytes(name, value)?),
            "registry_auth" => self.registry_auth = Some(registry_auth(name, value)?),
            "i_accept_weaker_isolation" => self.accepts_weaker = boolean(name, value)?,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// An error about one option.
pub(super) fn invalid(option: &str, reason: impl Into<String>) -> ProvisionError {
    ProvisionError::Option {
        provider: PROVIDER.to_owned(),
        option: option.to_owned(),
        reason: reason.into(),
    }
}

fn unknown(name: &str) -> ProvisionError {
    let folded = name.to_ascii_lowercase().replace('-', "_");
    let close = KNOWN.iter().find(|known| {
        let (known, folded) = (known.replace('_', ""), folded.replace('_', ""));
        known == folded || (folded.len() > 3 && (known.contains(&folded) || folded.contains(&known)))
    });
    let suggestion = close
        .map(|known| format!(" (did you mean '{known}'?)"))
        .unwrap_or_default();
    invalid(
        name,
        format!(
            "there is no such option{suggestion}; there are {}",
            KNOWN.join(", ")
        ),
    )
}

fn boolean(name: &str, value: &Value) -> Result<bool, ProvisionError> {
    value
        .as_bool()
        .ok_or_else(|| invalid(name, "it has to be true or false"))
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, ProvisionError> {
    value
        .as_str()
        .ok_or_else(|| invalid(name, "it has to be a string"))
}

fn bytes(name: &str, value: &Value) -> Result<i64, ProvisionError> {
    let bytes = value.as_i64().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| invalid(name, "it has to be a number of bytes, more than 0"))
}

/// A list of strings, each with its path for errors.
fn texts<'a>(name: &str, value: &'a Value) -> Result<Vec<(String, &'a str)>, ProvisionError> {
    let list = value
        .as_array()
        .ok_or_else(|| invalid(name, "it has to be a list of strings"))?;
    let entry = |(at, value): (usize, &'a Value)| {
        let path = format!("{name}[{at}]");
        text(&path, value).map(|text| (path.clone(), text))
    };
    list.iter().enumerate().map(entry).collect()
}

fn pull_policy(name: &str, value: &Value) -> Result<PullPolicy, ProvisionError> {
    match text(name, value)? {
        "never" => Ok(PullPolicy::Never),
        "if_missing" => Ok(PullPolicy::IfMissing),
        "always" => Ok(PullPolicy::Always),
        _ => Err(invalid(name, "it has to be never, if_missing or always")),
    }
}

fn capabilities(name: &str, value: &Value) -> Result<Vec<String>, ProvisionError> {
    let mut names = Vec::new();
    for (path, given) in texts(name, value)? {
        let upper = given.to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if short.is_empty() || !short.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') {
            return Err(invalid(
                &path,
                "it has to be a capability such as NET_RAW, or ALL",
            ));
        }
        names.push(short.to_owned());
    }
    Ok(names)
}

fn network_mode(name: &str, value: &Value) -> Result<NetworkMode, ProvisionError> {
    match text(name, value)? {
        "none" => Ok(NetworkMode::None),
        "bridge" | "default" => Ok(NetworkMode::Bridge),
        "host" => Ok(NetworkMode::Host),
        other => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            match !other.is_empty() && other.chars().all(is_name) {
                true => Ok(NetworkMode::Named(other.to_owned())),
                false => Err(invalid(
                    name,
                    "it has to be none, bridge, host or the name of a network",
                )),
            }
        }
    }
}

fn pid_mode(name: &str, value: &Value) -> Result<bool, ProvisionError> {
    match text(name, value)? {
        "host" => Ok(true),
        "private" => Ok(false),
        _ => Err(invalid(name, "it has to be private or host")),
    }
}

fn security_opts(name: &str, value: &Value) -> Result<Vec<SecurityOpt>, ProvisionError> {
    let understood = |(path, given): (String, &str)| match given.replacen(':', "=", 1).as_str() {
        "no-new-privileges" | "no-new-privileges=true" => Ok(SecurityOpt::NoNewPrivileges),
        "seccomp=unconfined" => Ok(SecurityOpt::SeccompUnconfined),
        "apparmor=unconfined" => Ok(SecurityOpt::AppArmorUnconfined),
        "label=disable" => Ok(SecurityOpt::LabelDisable),
        _ => Err(invalid(
            &path,
            "it has to be no-new-privileges, seccomp=unconfined, apparmor=unconfined or label=disable",
        )),
    };
    texts(name, value)?.into_iter().map(understood).collect()
}

fn registry_auth(name: &str, value: &Value) -> Result<RegistryAuth, ProvisionError> {
    let fields = value
        .as_object()
        .ok_or_else(|| invalid(name, "it has to be an object"))?;
    if let Some(other) = fields
        .keys()
        .find(|key| !["username", "password_secret"].contains(&key.as_str()))
    {
        // The value is not repeated: it may well be a password.
        let reason = "it has only username and password_secret; a password itself does not belong here";
        return Err(invalid(&format!("{name}.{other}"), reason));
    }
    let field = |key: &str| {
        let path = format!("{name}.{key}");
        let value = fields.get(key).ok_or_else(|| invalid(&path, "it is missing"))?;
        let value = text(&path, value)?;
        match value.is_empty() || value.contains('\0') {
            true => Err(invalid(&path, "it is empty or has a NUL byte")),
            false => Ok(value.to_owned()),
        }
    };
    Ok(RegistryAuth {
        username: field("username")?,
        password_secret: field("password_secret")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(options: Value) -> Result<Options, ProvisionError> {
        Options::parse(options.as_object().unwrap())
    }

    /// Path and reason of the error.
    fn refused(options: Value) -> (String, String) {
        match parse(options) {
            Err(ProvisionError::Option { option, reason, .. }) => (option, reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_of_them_are_read() {
        let parsed = parse(json!({
            "image_pull_policy": "always", "read_only": true, "cap_drop": ["all"], "cap_add": ["CAP_NET_RAW"],
            "privileged": true, "network_mode": "host", "pid_mode": "host", "shm_size": 1024,
            "security_opt": ["seccomp=unconfined", "no-new-privileges:true"],
            "registry_auth": {"username": "u", "password_secret": "s"}, "i_accept_weaker_isolation": true,
        }));
        let expected = Options {
            pull_policy: PullPolicy::Always,
            read_only: true,
            cap_drop: vec!["ALL".to_owned()],
            cap_add: vec!["NET_RAW".to_owned()],
            privileged: true,
            network_mode: Some(NetworkMode::Host),
            host_pid: true,
            security_opt: vec![SecurityOpt::SeccompUnconfined, SecurityOpt::NoNewPrivileges],
            shm_size: Some(1024),
            registry_auth: Some(RegistryAuth {
                username: "u".to_owned(),
                password_secret: "s".to_owned(),
            }),
            accepts_weaker: true,
        };
        assert_eq!(parsed.unwrap(), expected);
        assert_eq!(parse(json!({})).unwrap(), Options::default());
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        for (options, path) in [
            (json!({"read_only": "yes"}), "read_only"),
            (json!({"image_pull_policy": "sometimes"}), "image_pull_policy"),
            (json!({"cap_drop": "ALL"}), "cap_drop"),
            (json!({"cap_add": ["NET_RAW", 1]}), "cap_add[1]"),
            (json!({"cap_add": [""]}), "cap_add[0]"),
            (json!({"network_mode": "container:x"}), "network_mode"),
            (json!({"pid_mode": "container:x"}), "pid_mode"),
            (json!({"security_opt": ["seccomp={}"]}), "security_opt[0]"),
            (json!({"shm_size": 0}), "shm_size"),
            (json!({"registry_auth": "u:p"}), "registry_auth"),
            (
                json!({"registry_auth": {"username": "u"}}),
                "registry_auth.password_secret",
            ),
            (
                json!({"i_accept_weaker_isolation": 1}),
                "i_accept_weaker_isolation",
            ),
        ] {
            assert_eq!(refused(options).0, path);
        }
    }

    #[test]
    fn an_unknown_option_gets_a_suggestion() {
        assert!(
            refused(json!({"readonly": true}))
                .1
                .contains("did you mean 'read_only'?")
        );
        assert!(
            refused(json!({"network": "host"}))
                .1
                .contains("did you mean 'network_mode'?")
        );
        assert!(!refused(json!({"x": true})).1.contains("did you mean"));
    }

    #[test]
    fn a_password_in_the_options_is_refused_and_not_repeated() {
        let (path, reason) = refused(json!({"registry_auth": {"username": "u", "password": "hunter2"}}));
        assert_eq!(path, "registry_auth.password");
        assert!(!reason.contains("hunter2"));
    }
}
