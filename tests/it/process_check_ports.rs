//! `tollgate check` where its ports are taken, and as JSON.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    process::{Process, run},
    stores,
};

#[test]
fn a_check_finds_a_port_in_use_and_is_made_offline() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap();
    // A provider that refuses connections is wrong, unless the check is made offline.
    let written = format!(
        "{}deployments = [{{ model = \"*\", provider = \"far\" }}]\n\
         [providers.far]\nkind = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\n",
        stores::lines(folder.path()),
    );
    std::fs::write(&config, &written).unwrap();
    let check = |more: &[&str]| {
        let mut arguments = vec!["check", "--json", "--config", config.to_str().unwrap()];
        arguments.extend(more);
        let listen = port.to_string();
        let environment = [
            (
                "TOLLGATE_OPERATOR_TOKEN",
                "7c1f9a04e6b25d83d0487ae1936bf25c",
            ),
            ("TOLLGATE__SERVER__LISTEN", &listen),
        ];
        let output = run(&arguments, &environment);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let wrong = checks.iter().filter(|check| check["state"] == "wrong");
        let wrong = wrong.map(|check| check["what"].as_str().unwrap().to_owned());
        assert_eq!(report["ok"], output.status.success());
        (wrong.collect::<Vec<_>>(), report)
    };
    let (wrong, report) = check(&[]);
    assert_eq!(wrong, ["server.listen", "provider `far`"], "{report}");
    assert!(
        report.to_string().contains("in use by another program"),
        "{report}"
    );
    let (wrong, report) = check(&["--offline"]);
    assert_eq!(wrong, ["server.listen"], "{report}");
    drop(taken);
    let (wrong, report) = check(&["--offline"]);
    assert!(wrong.is_empty(), "{report}");
    // A file with mistakes is a report too.
    let mistaken = written.replace("openai", "telepathy").replace('*', "nope");
    std::fs::write(&config, mistaken).unwrap();
    let (wrong, report) = check(&["--offline"]);
    let file = config.display().to_string();
    assert!(
        wrong.len() >= 2 && wrong.iter().all(|what| *what == file),
        "{report}"
    );
    for setting in ["`providers.far.kind`", "`deployments[0].model`"] {
        assert!(report.to_string().contains(setting), "{report}");
    }
}

/// The ports of a gateway that runs are its own: by its store if that is a file, by its answer if the store is shared.
#[tokio::test]
async fn a_check_beside_a_running_gateway_is_no_failure() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let served = "providers.play.kind = \"simulator\"\n\
                  deployments = [{ model = \"*\", provider = \"play\" }]\n";
    std::fs::write(&config, stores::lines(folder.path()) + served).unwrap();
    let token = (
        "TOLLGATE_OPERATOR_TOKEN",
        "7c1f9a04e6b25d83d0487ae1936bf25c",
    );
    let any = ["SERVER", "OPERATOR"].map(|name| format!("TOLLGATE__{name}__LISTEN"));
    let environment = [
        token,
        (any[0].as_str(), "127.0.0.1:0"),
        (any[1].as_str(), "127.0.0.1:0"),
    ];
    let (_process, public, operator) = Process::serve(&config, &environment).await;
    // Of another store, so that the gateway is known by its answer alone.
    let beside = folder.path().join("beside.toml");
    let store = folder.path().join("beside/tollgate.db");
    let other = format!("store.url = \"sqlite:{}\"\n{served}", store.display());
    std::fs::write(&beside, other).unwrap();
    let check = |file: &Path, public: SocketAddr, operator: SocketAddr| {
        let [public, operator] = [public, operator].map(|address| address.to_string());
        let environment = [
            token,
            (any[0].as_str(), public.as_str()),
            (any[1].as_str(), operator.as_str()),
        ];
        let file = file.to_str().unwrap();
        let output = run(&["check", "--json", "--config", file], &environment);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let states = ["server.listen", "operator.listen"].map(|what| {
            let mut checks = report["checks"].as_array().unwrap().iter();
            let found = checks.find(|check| check["what"] == what);
            found.map(|check| check["state"].as_str().unwrap().to_owned())
        });
        (output.status.success(), states, report)
    };
    let running = [Some("note".to_owned()), Some("note".to_owned())];
    for file in [&config, &beside] {
        let (ok, states, report) = check(file, public, operator);
        assert!(ok && states == running, "{report}");
    }
    // Only one of the two is the gateway's.
    let (ok, states, report) = check(&beside, "127.0.0.1:0".parse().unwrap(), public);
    assert!(!ok && states[1].as_deref() == Some("wrong"), "{report}");
    // Both listeners at one address: no gateway can start like this.
    let every = SocketAddr::from(([0, 0, 0, 0], public.port()));
    let every_v6 = SocketAddr::from(([0_u16; 8], public.port()));
    for (public, operator) in [
        (public, public),
        (public, every),
        (public, every_v6),
        (every_v6, every),
    ] {
        let (ok, _, report) = check(&config, public, operator);
        let words = "where `server.listen` takes requests";
        assert!(!ok && report.to_string().contains(words), "{report}");
    }
}
