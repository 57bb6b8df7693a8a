//! `tollgate check`: the file, the store and the providers, without touching any of them.

use std::path::Path;

use tempfile::TempDir;

use crate::support::process::{run, text};

fn check(config: &Path) -> (i32, String, String) {
    let arguments = ["check", "--config", config.to_str().unwrap()];
    let output = run(
        &arguments,
        &[("TOLLGATE_OPERATOR_TOKEN", "0123456789abcdef")],
    );
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_tells_a_good_configuration_from_a_bad_one() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let store = folder.path().join("store/tollgate.db");
    let good = format!(
        "store.url = \"sqlite:{}\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        store.display()
    );
    std::fs::write(&config, &good).unwrap();
    let (code, stdout, stderr) = check(&config);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(
        stdout.contains("ok    store: ") && stdout.contains("ok    provider `play`"),
        "{stdout}"
    );
    assert!(
        !store.exists() && !store.parent().unwrap().exists(),
        "a check changes nothing"
    );

    std::fs::write(
        &config,
        good.replace("simulator", "telepathy")
            .replace("\"*\"", "\"nope\""),
    )
    .unwrap();
    let (code, _, stderr) = check(&config);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("`providers.play.kind`") && stderr.contains("`deployments[0].model`"),
        "{stderr}"
    );

    let dead = "{ kind = \"openai\", base_url = \"http://127.0.0.1:1/v1\" }";
    std::fs::write(
        &config,
        good.replace(".kind = \"simulator\"", &format!(" = {dead}")),
    )
    .unwrap();
    let (code, stdout, stderr) = check(&config);
    assert_eq!(
        code, 1,
        "a provider that does not answer is wrong: {stdout}"
    );
    assert!(stdout.contains("wrong provider `play`"), "{stdout}");
    assert!(stderr.contains("one thing is wrong"), "{stderr}");

    let (code, _, stderr) = check(&folder.path().join("nowhere.toml"));
    assert_eq!(code, 1);
    assert!(stderr.contains("nowhere.toml"), "{stderr}");
}
