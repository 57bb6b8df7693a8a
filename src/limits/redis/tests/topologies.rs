//! A cluster, Sentinels, TLS and passwords.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;

async fn works(url: &str) {
    let limiter = limiter(url, DEADLINE, &Ledger::default()).await;
    let mut admission = admit(&limiter, 1, 100).await.unwrap();
    admission.renew(30, 50, CEILINGS).await.unwrap();
    admission.settle(20);
    admit(&limiter, 2, 100).await.unwrap().cancel();
    assert_eq!(left(&limiter).await, (59, 950));
    for (call, account) in (3..).zip(["b", "c", "d", "e", "f", "g"]) {
        let admitted = limiter.admit(call, account, "m", 1, CEILINGS).await;
        assert!(admitted.is_ok());
    }
    let probed = Address::parse(url).unwrap().probe().await.unwrap();
    assert!(probed.contains("master"), "{probed}");
}

#[tokio::test]
async fn a_cluster() {
    let server = Server::start(&["--cluster-enabled", "yes"]).await;
    let _: () = server.run("CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("a cluster", async || {
        let text: String = server.run("CLUSTER INFO").await;
        text.contains("cluster_state:ok")
    })
    .await;
    works(&format!("redis-cluster://127.0.0.1:{}", server.port)).await;
}

#[tokio::test]
async fn sentinels() {
    let server = Server::start(&[]).await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("sentinel.conf");
    let text = format!("sentinel monitor main 127.0.0.1 {} 1\n", server.port);
    std::fs::write(&file, text).unwrap();
    let sentinel = Server::start_in(folder, &[file.to_str().unwrap(), "--sentinel"]).await;
    works(&format!(
        "redis-sentinel://127.0.0.1:{}/main",
        sentinel.port
    ))
    .await;
}

#[tokio::test]
async fn tls_and_a_password() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    std::fs::write(path("cert.pem"), certificate.pem()).unwrap();
    std::fs::write(path("key.pem"), key.serialize_pem()).unwrap();
    let port = server::free_port();
    let args = [
        ["--tls-port", &port.to_string()],
        ["--tls-cert-file", &path("cert.pem")],
        ["--tls-key-file", &path("key.pem")],
        ["--tls-ca-cert-file", &path("ca.pem")],
        ["--tls-auth-clients", "no"],
    ];
    let server = Server::start(&args.concat()).await;
    let _: () = server.run("ACL SETUSER gate on >s3cret ~* +@all").await;
    let _: () = server.run("ACL SETUSER default off").await;
    let ca = path("ca.pem");
    works(&format!("rediss://gate:s3cret@localhost:{port}?ca={ca}")).await;

    for url in [
        format!("rediss://gate:s3cret@localhost:{port}"),
        format!("rediss://gate:s3cret2@localhost:{port}?ca={ca}"),
        format!("rediss://gate:s3cret@127.0.0.1:{port}?ca={ca}"),
        format!("redis://gate:s3cret@127.0.0.1:{port}"),
    ] {
        let error = Address::parse(&url).unwrap().probe().await.unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
