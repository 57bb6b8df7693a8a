//! Ready-to-paste commands that start a coding agent with the gateway. They change no settings file.
//!
//! docs/AGENTS.md has the same commands with their explanations; the client tests run those.

/// The model that agents are started with; every plan includes it.
const AGENTS_MODEL: &str = "svc-light-coding";

/// The name of an agent and its commands.
pub(super) fn all(origin: &str, key: &str) -> [(&'static str, String); 2] {
    [
        ("Claude Code", claude_code(origin, key)),
        ("Codex", codex(origin, key)),
    ]
}

/// The models are named one by one, because Claude Code has names of its own for the small tasks and for subagents.
fn claude_code(origin: &str, key: &str) -> String {
    format!(
        r#"export ANTHROPIC_BASE_URL="{origin}"
export ANTHROPIC_AUTH_TOKEN="{key}"
export ANTHROPIC_MODEL="{AGENTS_MODEL}"
export ANTHROPIC_DEFAULT_OPUS_MODEL="{AGENTS_MODEL}"
export ANTHROPIC_DEFAULT_SONNET_MODEL="{AGENTS_MODEL}"
export ANTHROPIC_DEFAULT_HAIKU_MODEL="{AGENTS_MODEL}"
claude"#
    )
}

fn codex(origin: &str, key: &str) -> String {
    format!(
        r#"export TOLLGATE_API_KEY="{key}"
codex -c model="{AGENTS_MODEL}" -c model_provider="tollgate" \
  -c 'model_providers.tollgate={{name="Tollgate", base_url="{origin}/v1", env_key="TOLLGATE_API_KEY", wire_api="responses"}}'"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_gets_the_base_url_of_its_api() {
        let [(_, claude_code), (_, codex)] = all("https://api.example.com", "sk-svc-1");
        // Claude Code appends `/v1/messages` itself, Codex only `/responses`.
        assert!(claude_code.contains("ANTHROPIC_BASE_URL=\"https://api.example.com\"\n"));
        assert!(codex.contains("base_url=\"https://api.example.com/v1\""));
        for text in [claude_code, codex] {
            assert!(text.contains("=\"sk-svc-1\"\n"), "{text}");
        }
    }

    #[test]
    fn every_plan_includes_the_model() {
        let catalog = crate::catalog::Catalog::built_in();
        let model = catalog.find(AGENTS_MODEL).unwrap();
        assert!(crate::catalog::Plan::ANONYMOUS.includes(model.min_tier));
    }
}
