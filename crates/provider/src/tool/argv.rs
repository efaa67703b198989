//! Argument lists with placeholders. No shell reads them, so nothing needs quoting.

use super::template::{TemplateError, TextTemplate};
use serde_json::{Map, Value};
use std::ffi::OsString;

/// An argument list in which a placeholder is a whole argument or a part of one. However a value
/// looks, it stays in its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgvTemplate {
    arguments: Vec<TextTemplate>,
}

impl ArgvTemplate {
    /// Reads the arguments. The first is the program and cannot be empty.
    pub fn parse<A: AsRef<str>>(arguments: impl IntoIterator<Item = A>) -> Result<Self, TemplateError> {
        let arguments = arguments
            .into_iter()
            .enumerate()
            .map(|(at, text)| {
                TextTemplate::parse(text.as_ref()).map_err(|error| error.within(format!("argument {at}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        match arguments.first() {
            Some(program) if !program.is_empty() => Ok(Self { arguments }),
            _ => Err(TemplateError::Empty),
        }
    }

    /// The arguments for one call. Fails only when a value has a NUL byte.
    pub fn render(&self, args: &Map<String, Value>) -> Result<Vec<OsString>, TemplateError> {
        self.arguments
            .iter()
            .map(|argument| argument.render(args).map(OsString::from))
            .collect()
    }

    /// The placeholders' names in order, with repetitions.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(TextTemplate::placeholders)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn args(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_value_stays_in_its_argument() {
        let template = ArgvTemplate::parse(["git", "log", "{{n}}", "--x={{ a.b }}/{{n}}"]).unwrap();
        assert_eq!(template.placeholders().collect::<Vec<_>>(), ["n", "a.b", "n"]);
        let rendered = template
            .render(&args(json!({"n": "a; 'b' $(c)", "a.b": {"k": [1, true]}})))
            .unwrap();
        assert_eq!(
            rendered,
            ["git", "log", "a; 'b' $(c)", "--x={\"k\":[1,true]}/a; 'b' $(c)"]
        );
    }

    #[test]
    fn a_missing_value_is_an_empty_argument() {
        let template = ArgvTemplate::parse(["x", "{{a}}", "{{b}}"]).unwrap();
        assert_eq!(template.render(&args(json!({"b": null}))).unwrap(), ["x", "", ""]);
    }

    #[test]
    fn bad_lists_are_refused() {
        assert!(ArgvTemplate::parse(["x", ""]).is_ok());
        assert_eq!(
            ArgvTemplate::parse(Vec::<String>::new()),
            Err(TemplateError::Empty)
        );
        assert_eq!(ArgvTemplate::parse(["", "x"]), Err(TemplateError::Empty));
        let error = ArgvTemplate::parse(["x", "ab{{ c-d }}"]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("argument 1: the placeholder at byte 2 is malformed"),
            "{error}"
        );
        assert!(ArgvTemplate::parse(["x\0"]).is_err());
    }

    #[test]
    fn a_nul_in_a_value_is_refused() {
        let template = ArgvTemplate::parse(["x", "{{a}}"]).unwrap();
        assert!(template.render(&args(json!({"a": "b"}))).is_ok());
        assert!(matches!(
            template.render(&args(json!({"a": "b\0"}))),
            Err(TemplateError::NulValue { name }) if name == "a"
        ));
    }
}
