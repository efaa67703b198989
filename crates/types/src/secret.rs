//! Secrets by name, docs/adr/0009: who configures names one, and only who needs the value looks it up.

/// Where passwords are looked up by their names.
pub trait SecretSource: Send + Sync {
    /// The value, or why there is none, without the value.
    fn secret(&self, name: &str) -> Result<String, String>;
}

/// Secrets in variables of this process: `STEAD_SECRET_` and the name, upper case, with `_` for all that is
/// no letter or digit.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvSecrets;

impl SecretSource for EnvSecrets {
    fn secret(&self, name: &str) -> Result<String, String> {
        let variable = secret_variable(name);
        let value = std::env::var(&variable).map_err(|_| format!("{variable} is not set, or is no text"))?;
        Ok(value)
    }
}

/// The variable of a secret.
pub fn secret_variable(name: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    format!("STEAD_SECRET_{}", name.chars().map(letter).collect::<String>())
}
