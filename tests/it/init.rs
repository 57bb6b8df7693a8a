//! The files that `tollgate init` writes, and the models that `tollgate model suggest` adds to them.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::process::{run, text};

/// The variables in which the providers' keys usually are.
const KEYS: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];

/// Runs the program in a folder, where nothing of the tests' environment leads to a provider.
fn init(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = folder.to_str().unwrap();
    let arguments = [&["init", "--folder", folder][..], arguments].concat();
    let output = run(&arguments, environment);
    (output.status.code(), text(&output.stderr))
}

/// The names that `--provider` takes.
fn providers() -> Vec<String> {
    let said = text(&run(&["init"], &[]).stderr);
    let (_, names) = said.split_once("--provider: ").expect(&said);
    let names: Vec<_> = names.trim().split(", ").map(str::to_owned).collect();
    let has = |name: &str| names.iter().any(|one| one == name);
    assert!(names.len() >= 15 && has("ollama"), "{names:?}");
    names
}

fn assert_checked(config: &Path) {
    let arguments = ["check", "--offline", "--config", config.to_str().unwrap()];
    let checked = run(&arguments, &[]);
    let (stdout, stderr) = (text(&checked.stdout), text(&checked.stderr));
    assert!(checked.status.success(), "{stdout}{stderr}");
}

#[test]
fn each_provider_gets_a_configuration_that_works_as_it_is() {
    for name in &providers() {
        let data = TempDir::new().unwrap();
        let folder = data.path().join("new");
        let mut options = vec!["--provider", name, "--model", "gpt-4o"];
        options.extend(["--input-price", "1", "--output-price", "2"]);
        if name == "simulator" {
            let url = [&options[..], &["--base-url", "http://127.0.0.1:9/v1"]].concat();
            assert_eq!(init(&folder, &url, &[]).0, Some(1), "it has no URL");
        } else {
            options.extend(["--base-url", "http://127.0.0.1:9/v1"]);
        }
        let key = KEYS.map(|variable| (variable, "sk-of-a-vendor"));
        let (code, stderr) = init(&folder, &options, &key);
        assert_eq!(code, Some(0), "{name}: {stderr}");
        for file in std::fs::read_dir(&folder).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}: {:?}", file.path());
            let written = std::fs::read_to_string(file.path()).unwrap();
            let is_config = file.file_name() == "tollgate.toml";
            assert!(
                !(is_config && written.contains("sk-of-a-vendor")),
                "{name}: {written}"
            );
        }
        assert_checked(&folder.join("tollgate.toml"));
        let (code, stderr) = init(&folder, &options, &key);
        assert_eq!(code, Some(1), "{name} was overwritten");
        assert!(stderr.contains("tollgate.toml"), "{stderr}");
    }
}

/// The configurations that `tollgate init` writes without a URL, and the models that are suggested for them.
#[test]
fn usual_urls_and_suggested_models_work_as_they_are() {
    let key = KEYS.map(|variable| (variable, "sk-of-a-vendor"));
    // Without a configuration, suggestions are for providers with the names that `tollgate init` gives them.
    let all = run(&["models", "suggest", "--json"], &[]);
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let all = all["models"].as_array().unwrap();
    let mut used = 0;
    for name in &providers() {
        let data = TempDir::new().unwrap();
        let mut options = vec!["--provider", name];
        let is_own = ["ollama", "vllm", "llama.cpp", "lmstudio"].contains(&name.as_str());
        if is_own {
            options.extend(["--model", "llama3.2", "--model", "llama3.2"]);
        }
        let (code, stderr) = init(data.path(), &options, &key);
        if ["azure", "compatible"].contains(&name.as_str()) {
            assert_eq!(code, Some(1), "{name}");
            assert!(stderr.contains("needs --base-url"), "{stderr}");
            continue;
        }
        assert_eq!(code, Some(0), "{name}: {stderr}");
        let config = data.path().join("tollgate.toml");
        assert_checked(&config);
        let written = std::fs::read_to_string(&config).unwrap();
        let models = written.matches("[[models]]").count();
        let priced = written.matches("# list prices of").count();
        assert_eq!(written.contains("base_url = \"http"), name != "simulator");
        if is_own || name == "simulator" {
            assert_eq!(
                (models, priced),
                (1, 0),
                "a repeated name is one model: {written}"
            );
            continue;
        }
        assert!(models > 1 && models == priced, "{written}");

        let more = [
            "models",
            "suggest",
            "--margin",
            "20%",
            "--config",
            config.to_str().unwrap(),
        ];
        let suggested = run(&more, &[]);
        let stderr = text(&suggested.stderr);
        assert!(suggested.status.success(), "{name}: {stderr}");
        let mut of_vendor = String::new();
        for model in all.iter().filter(|model| model["provider"] == **name) {
            used += 1;
            if !written.contains(&format!("id = {}", model["id"])) {
                of_vendor += model["toml"].as_str().unwrap();
            }
        }
        for more in [text(&suggested.stdout), of_vendor] {
            std::fs::write(&config, format!("{written}\n{more}")).unwrap();
            assert_checked(&config);
        }
    }
    assert_eq!(used, all.len(), "each is for a provider of that name");
}

#[test]
fn openrouter_sells_models_under_the_names_of_their_makers() {
    let data = TempDir::new().unwrap();
    let key = [("OPENROUTER_API_KEY", "sk-of-a-vendor")];
    let (code, stderr) = init(data.path(), &["--provider", "openrouter"], &key);
    assert_eq!(code, Some(0), "{stderr}");
    let config = data.path().join("tollgate.toml");
    let config = config.to_str().unwrap();
    let ours = [
        "models",
        "suggest",
        "gpt-4o",
        "anthropic/claude-opus-4.8",
        "--config",
        config,
    ];
    let suggested = text(&run(&ours, &[]).stdout);
    let document: toml::Table = suggested.parse().expect("it is TOML");
    let models = document["models"].as_array().unwrap();
    let found = models.iter().map(|model| {
        let field = |name: &str| model[name].as_str().unwrap();
        (field("id"), field("provider"))
    });
    let expected = ["openai/gpt-4o", "anthropic/claude-opus-4.8"].map(|id| (id, "openrouter"));
    assert_eq!(found.collect::<Vec<_>>(), expected, "{suggested}");
    assert!(suggested.contains("input = \"2.50\""), "{suggested}");
}

#[test]
fn a_configuration_that_would_not_work_or_lose_money_is_not_written() {
    let data = TempDir::new().unwrap();
    let folder = data.path().join("new");
    let key = KEYS.map(|variable| (variable, "sk-of-a-vendor"));
    let azure = "https://mine.openai.azure.com/openai/v1";
    for (options, words) in [
        (&["--listen", "somewhere"][..], "`server.listen`"),
        // That of the operator API.
        (&["--listen", "127.0.0.1:9090"], "`operator.listen`"),
        (
            &["--base-url", "api.openai.com"],
            "`providers.openai.base_url`",
        ),
        (
            &["--model", "gpt-of-ours"],
            "OpenAI has no list price of gpt-of-ours",
        ),
        (
            &["--model", "gpt-of-ours", "--input-price", "3"],
            "--output-price",
        ),
    ] {
        let options = [&["--provider", "openai"][..], options].concat();
        let (code, stderr) = init(&folder, &options, &key);
        assert_eq!(code, Some(1), "{options:?}: {stderr}");
        assert!(stderr.contains(words), "{options:?}: {stderr}");
        assert!(stderr.contains("othing was written"), "{stderr}");
        assert!(!folder.exists(), "{options:?}");
    }
    // A deployment of Azure has any name.
    let mut options = vec![
        "--provider",
        "azure",
        "--base-url",
        azure,
        "--model",
        "ours",
    ];
    let (_, stderr) = init(&folder, &options, &key);
    assert!(
        stderr.contains("Azure OpenAI has no list price of ours"),
        "{stderr}"
    );
    options.extend(["--input-price", "3", "--output-price", "12"]);

    // A file that cannot be written leaves no other behind.
    let in_the_way = folder.join("tollgate.toml.part");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let (code, stderr) = init(&folder, &options, &key);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("tollgate.toml.part cannot be written"),
        "{stderr}"
    );
    assert_eq!(
        std::fs::read_dir(&folder).unwrap().count(),
        1,
        "no token, no key"
    );
    std::fs::remove_dir(&in_the_way).unwrap();
    let (code, stderr) = init(&folder, &options, &key);
    assert_eq!(code, Some(0), "{stderr}");
    let written = std::fs::read_to_string(folder.join("tollgate.toml")).unwrap();
    for line in [
        "input = \"3\"",
        "output = \"12\"",
        "key_header = \"api-key\"",
    ] {
        assert!(written.contains(line), "{written}");
    }
    assert_checked(&folder.join("tollgate.toml"));
}

#[test]
fn prices_are_suggested_with_a_margin() {
    let data = TempDir::new().unwrap();
    let key = [("OPENAI_API_KEY", "sk-of-a-vendor")];
    let (code, stderr) = init(
        data.path(),
        &[
            "--provider",
            "openai",
            "--model",
            "gpt-4o",
            "--margin",
            "50%",
        ],
        &key,
    );
    assert_eq!(code, Some(0), "{stderr}");
    let config = data.path().join("tollgate.toml");
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(
        written.contains("input = \"3.75\"") && written.contains("output = \"15.00\""),
        "{written}"
    );
    let config = config.to_str().unwrap();
    let suggested = run(
        &["model", "suggest", "--margin", "20%", "--config", config],
        &[],
    );
    let suggested = text(&suggested.stdout);
    let entry = suggested
        .split("[[models]]")
        .find(|entry| entry.contains("\"gpt-5.6\""));
    let entry = entry.expect(&suggested);
    assert!(
        entry.contains("input = \"6.00\"") && entry.contains("output = \"36.00\""),
        "{entry}"
    );
    let document: toml::Table = suggested.parse().expect("it is TOML");
    assert!(document["models"].as_array().unwrap().len() > 5);
}
