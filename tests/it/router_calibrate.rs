//! `tollgate router calibrate`: from labels to settings for the catalog.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{catalog::Catalog, routing::Scorer};

use crate::support::process::{run, text};

const TARGETS: [&str; 4] = ["svc-native-fast", "svc-pro", "svc-standard", "svc-basic"];

struct Calibration {
    folder: TempDir,
}

struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Calibration {
    fn new(labels: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("labels.jsonl"), labels).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, more: &[&str]) -> Said {
        let labels = self.file("labels.jsonl");
        let arguments = ["router", "calibrate", labels.to_str().unwrap()];
        let token = [(
            "TOLLGATE_OPERATOR_TOKEN",
            "7c1f9a04e6b25d83d0487ae1936bf25c",
        )];
        let output = run(&[&arguments, more].concat(), &token);
        Said {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// Different prompts, each with a score of every target's answer.
fn labels(number: usize, score: impl Fn(usize, usize) -> f64) -> String {
    let tasks = [
        "Say hello in Danish to person",
        "Prove that every integral domain of this order is a field, case",
        "What is the capital of country",
        "Write a function that sorts list",
    ];
    let line = |at: usize| {
        let targets = TARGETS.iter().enumerate();
        let scores = targets.map(|(target, id)| ((*id).to_owned(), json!(score(at, target))));
        let scores: serde_json::Map<_, _> = scores.collect();
        let prompt = format!("{} {at}", tasks[at % tasks.len()]);
        json!({ "prompt": prompt, "scores": scores }).to_string() + "\n\n"
    };
    (0..number).map(line).collect()
}

#[test]
fn its_output_is_valid_in_the_catalog() {
    let calibration = Calibration::new(&labels(200, |_, _| 1.0));
    let said = calibration.run(&["--model", "svc-hybrid-tiered"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.starts_with("MODEL "), "{}", said.stdout);
    assert!(said.stdout.contains("200 in all"), "{}", said.stdout);
    assert!(said.stderr.contains("200 labels"), "{}", said.stderr);
    let (_, toml) = said.stdout.split_once("\n# svc-hybrid-tiered").unwrap();
    let (_, toml) = toml.split_once('\n').unwrap();
    let hybrid = "[[models]]\nid = \"svc-hybrid-tiered\"\nrouter = \"tiered\"\n\
                  targets = [\"svc-native-fast\", \"svc-basic\"]\n";
    let catalog = Catalog::built_in().extended_by(&format!("{hybrid}{toml}"));
    let catalog = catalog.unwrap_or_else(|mistakes| panic!("{mistakes:?} in {toml}"));
    let router = catalog.find("svc-hybrid-tiered").unwrap().router.clone();
    let Some(tollgate::catalog::Router::Tiered(settings)) = router else {
        panic!("a tiered router")
    };
    // The weakest target is always right: only the hardest prompts go elsewhere.
    assert!(settings.cuts[0] > 0.5, "{settings:?}");
    let again = calibration.run(&["--model", "svc-hybrid-tiered"]);
    assert_eq!(again.stdout, said.stdout);
}

#[test]
fn all_results_are_available_as_json() {
    let calibration = Calibration::new(&labels(120, |at, _| f64::from(u8::from(at % 3 > 0))));
    let said = calibration.run(&["--json", "--quality", "0.9"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(found["labels"], 120);
    assert_eq!(found["asked_quality"], 0.9);
    assert_eq!(found["weights"], Scorer::embedded().version());
    let hybrids = found["hybrids"].as_array().unwrap();
    let models: Vec<_> = hybrids.iter().map(|one| &one["model"]).collect();
    let expected = ["svc-hybrid-cost", "svc-hybrid-tiered", "svc-hybrid-turn"];
    assert_eq!(models, expected);
    let tiered = &hybrids[1];
    assert_eq!(tiered["before"], "cuts = [0.2, 0.3, 0.65]");
    assert_eq!(tiered["held_out_half"]["after"]["quality"], 1.0);
    assert!(tiered["toml"].as_str().unwrap().contains("[models.tiered]"));
    // This hybrid has targets without labels.
    let unknown = json!(["svc-native-flash", "svc-native-standard"]);
    assert_eq!(hybrids[0]["left_out"], unknown);
    let warning = "`svc-hybrid-cost`: `svc-native-flash` has too few labels";
    assert!(said.stderr.contains(warning), "{}", said.stderr);
}

#[test]
fn bad_labels_are_reported_by_line_and_nothing_is_written() {
    let bad = labels(60, |_, _| 1.0)
        + "{\"prompt\": \"Hi\", \"scores\": {\"svc-prof\": 1}}\n"
        + "{\"prompt\": \"Hi\", \"scores\": {\"svc-pro\": 2}}\nno\n";
    let calibration = Calibration::new(&bad);
    let out = calibration.file("router.bin");
    let said = calibration.run(&["--heads", "--out", out.to_str().unwrap()]);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.stdout, "");
    for mistake in [
        "labels.jsonl cannot be used:\n- line 121: `svc-prof` is no model of the catalog",
        "\n- line 122: the score of `svc-pro` is 2; expected a number from 0 to 1",
        "\n- line 123: this is not JSON",
    ] {
        assert!(said.stderr.contains(mistake), "{}", said.stderr);
    }
    assert!(!out.exists());
}

#[test]
fn impossible_calibrations_are_reported() {
    let few = Calibration::new(&labels(30, |_, _| 1.0));
    let enough = Calibration::new(&labels(60, |_, _| 1.0));
    for (calibration, arguments, code, words) in [
        (&few, vec![], 1, "30 usable labels, and 50 are needed"),
        (&enough, vec!["--quality", "1.5"], 2, "above 0 and up to 1"),
        (&enough, vec!["--heads"], 2, "--out"),
        (
            &enough,
            vec!["--model", "svc-pro"],
            1,
            "`svc-pro` is no hybrid",
        ),
        (
            &enough,
            vec!["--config", "none.toml"],
            1,
            "none.toml cannot be used",
        ),
    ] {
        let said = calibration.run(&arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.stderr);
        assert!(
            said.stderr.contains(words),
            "{arguments:?}: {}",
            said.stderr
        );
        assert_eq!(said.stdout, "", "{arguments:?}");
    }
}

/// The written file is accepted by the configuration, and the next run starts from it.
#[test]
fn new_weights_are_written_and_used() {
    let calibration = Calibration::new(&labels(200, |_, target| [0.9, 0.92, 0.95, 1.0][target]));
    let (out, config) = (
        calibration.file("router.bin"),
        calibration.file("tollgate.toml"),
    );
    let arguments = ["--heads", "--out", out.to_str().unwrap()];
    let said = calibration.run(&arguments);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("CALIBRATION"), "{}", said.stdout);
    let hint = format!("weights = \"{}\" under [routing]", out.display());
    assert!(said.stderr.contains(&hint), "{}", said.stderr);
    let scorer = Scorer::read(&std::fs::read(&out).unwrap()).unwrap();
    assert_ne!(scorer.version(), Scorer::embedded().version());
    let weakest = scorer.score("Say hello in Danish to person 0").quality[0];
    assert!((weakest - 0.9).abs() < 0.1, "{weakest}");

    let text = format!(
        "routing.weights = \"{}\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        out.display()
    );
    std::fs::write(&config, text).unwrap();
    let said = calibration.run(&["--config", config.to_str().unwrap(), "--json"]);
    let found: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(found["weights"], scorer.version());
    assert_eq!(found["heads"], json!(null));
}
