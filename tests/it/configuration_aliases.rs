//! `[models.aliases]`: which aliases are refused, and what the message says to do.

use std::collections::BTreeMap;

use tollgate::config::Config;

use crate::configuration::SMALL;

fn mistakes(aliases: &str) -> String {
    let token = "7c1f9a04e6b25d83d0487ae1936bf25c".to_owned();
    let environment = BTreeMap::from([("TOLLGATE_OPERATOR_TOKEN".to_owned(), token)]);
    let text = format!("{SMALL}[models.aliases]\n{aliases}");
    let parsed = Config::parse("tollgate.toml", &text, &environment);
    parsed.map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn names_and_patterns_are_accepted() {
    let aliases = "\"claude-*\" = \"svc-pro\"\n\"o3\" = \"svc-hybrid-cost\"\n\
        \"svc-pro\" = \"svc-basic\"\n\"vendor/model:free\" = \"svc-pro\"\n";
    assert_eq!(mistakes(aliases), "");
}

#[test]
fn each_mistake_says_what_to_do() {
    let aliases = r#""gpt-*" = "svc-nope"
"codex" = "gpt-6"
"o3" = "o3"
"" = "svc-pro"
"*" = "svc-pro"
"a*b" = "svc-pro"
"a**" = "svc-pro"
"a b" = "svc-pro"
"number" = 5
"#;
    let expected = r#"tollgate.toml cannot be used: 9 mistakes
- line 10: `models.aliases` has an empty name; write the name that callers ask for
- line 11: `models.aliases.*` matches every name, mistyped ones too; write the beginning of a name before `*`
- line 14: `models.aliases.a b` has a blank or a character that is not ASCII; no client asks for such a name
- line 13: `models.aliases.a**` has a `*` before its end; write an exact name, or a beginning followed by one `*`
- line 12: `models.aliases.a*b` has a `*` before its end; write an exact name, or a beginning followed by one `*`
- line 8: `models.aliases.codex` is "gpt-6", which is an alias itself; write the ID of the model
- line 7: `models.aliases.gpt-*` is "svc-nope"; expected the ID of a model of the catalog, e.g. `svc-pro`
- line 15: `models.aliases.number` is 5; expected the ID of a model of the catalog, e.g. `svc-pro`
- line 9: `models.aliases.o3` is "o3", which is an alias itself; write the ID of the model"#;
    assert_eq!(mistakes(aliases), expected);
}
