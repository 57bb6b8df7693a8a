//! `tollgate serve` with TLS: both HTTP versions, and a certificate that changes at run time.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::{
    Process,
    process::{run, text},
    stores,
    tls::{Certificate, Met, get},
};

const TOKEN: [(&str, &str); 1] = [(
    "TOLLGATE_OPERATOR_TOKEN",
    "7c1f9a04e6b25d83d0487ae1936bf25c",
)];

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let files = Self { folder };
        let config = format!(
            "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
             server.tls = {{ cert = \"{}\", key = \"{}\" }}\n{}\
             providers.play.kind = \"simulator\"\n\
             deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
            files.at("cert.pem").display(),
            files.at("key.pem").display(),
            stores::lines(files.folder.path()),
        );
        std::fs::write(files.at("tollgate.toml"), config).unwrap();
        files
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn install(&self, certificate: &Certificate) {
        certificate.write(&self.at("cert.pem"), &self.at("key.pem"));
    }
}

#[tokio::test]
async fn both_protocols_are_offered_and_the_clients_choice_counts() {
    let (files, certificate) = (Files::new(), Certificate::generate());
    files.install(&certificate);
    let (process, public, _) = Process::serve(&files.at("tollgate.toml"), &TOKEN).await;
    for (offered, agreed, version) in [
        (&["h2", "http/1.1"][..], "h2", hyper::Version::HTTP_2),
        (&["h2"], "h2", hyper::Version::HTTP_2),
        (&["http/1.1"], "http/1.1", hyper::Version::HTTP_11),
        (&[], "", hyper::Version::HTTP_11),
    ] {
        let met = get(public, &certificate, offered, "/health").await.unwrap();
        let expected = Met {
            protocol: agreed.to_owned(),
            version,
            status: 200,
        };
        assert_eq!(met, expected, "{offered:?}");
        let unauthorized = get(public, &certificate, offered, "/v1/nowhere")
            .await
            .unwrap();
        assert_eq!(unauthorized.status, 401, "{offered:?}");
    }
    assert!(process.stderr().contains(&format!("https://{public}")));
    let plain = reqwest::Client::builder().no_proxy().build().unwrap();
    let plain = plain.get(format!("http://{public}/health")).send().await;
    assert!(plain.is_err(), "nothing is served in the clear");
    assert_eq!(process.terminated().await.code, Some(0));
}

/// The certificate has a public name, and the command is run on the gateway's machine.
#[tokio::test]
async fn the_health_command_accepts_the_certificate_of_this_machines_gateway() {
    let (files, certificate) = (Files::new(), Certificate::of("api.example.com"));
    files.install(&certificate);
    let (_process, public, _) = Process::serve(&files.at("tollgate.toml"), &TOKEN).await;
    let url = format!("https://{public}");
    let ready = run(&["health", "--url", &url], &[]);
    assert_eq!(text(&ready.stderr), "");
    assert_eq!(text(&ready.stdout), "ready\n");

    // A command that sends the operator token verifies who gets it, and names the cause.
    let refused = run(&["account", "list", "--operator-url", &url], &TOKEN);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("certificate"), "{said}");
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not() {
    let (files, first, second) = (
        Files::new(),
        Certificate::generate(),
        Certificate::generate(),
    );
    files.install(&first);
    let (mut process, public, _) = Process::serve(&files.at("tollgate.toml"), &TOKEN).await;
    assert_eq!(
        get(public, &first, &["h2"], "/health")
            .await
            .unwrap()
            .status,
        200
    );
    get(public, &second, &["h2"], "/health")
        .await
        .expect_err("not served yet");

    files.install(&second);
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = get(public, &second, &["h2"], "/health").await {
        assert!(
            Instant::now() < deadline,
            "the new certificate in time: {error}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    get(public, &first, &["h2"], "/health")
        .await
        .expect_err("the old one is gone");

    let cannot_be_used = |process: &Process| {
        let lines = process.stderr();
        lines
            .matches("the changed TLS certificate cannot be used")
            .count()
    };
    for broken in [
        "",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let before = cannot_be_used(&process);
        std::fs::write(files.at("cert.pem"), broken).unwrap();
        process
            .until(|process| cannot_be_used(process) > before)
            .await;
        let met = get(public, &second, &["http/1.1"], "/health").await;
        assert_eq!(met.unwrap().status, 200, "the old certificate stays");
    }
    files.install(&first);
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = get(public, &first, &["h2"], "/health").await {
        assert!(Instant::now() < deadline, "mended in time: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn an_unusable_certificate_prevents_the_start() {
    let (files, first, second) = (
        Files::new(),
        Certificate::generate(),
        Certificate::generate(),
    );
    let config = files.at("tollgate.toml");
    let config = config.to_str().unwrap();
    for (what, prepare) in [
        ("no files", Box::new(|| ()) as Box<dyn Fn()>),
        (
            "no certificate in it",
            Box::new(|| std::fs::write(files.at("cert.pem"), "").unwrap()),
        ),
        (
            "another's key",
            Box::new(|| second.write(&files.at("other.pem"), &files.at("key.pem"))),
        ),
    ] {
        if what != "no files" {
            files.install(&first);
        }
        prepare();
        for command in ["serve", "check"] {
            let refused = run(&[command, "--config", config], &TOKEN);
            let said = text(&refused.stdout) + &text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{what}, {command}: {said}");
            assert!(
                said.contains(".pem"),
                "{what}, {command}: the file is named: {said}"
            );
        }
    }
}
