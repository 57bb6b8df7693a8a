//! A provider with an invalid TLS certificate: no request is sent to it, and nothing is charged.

use std::{net::SocketAddr, sync::Arc};

use rustls::{ServerConfig, crypto::ring};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{FakeUpstream, Serving, gateway::hello, tls::Certificate};

/// A port that terminates TLS and forwards to `inner`.
async fn behind(certificate: &Certificate, inner: SocketAddr) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der()], certificate.key())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut socket) = acceptor.accept(socket).await else {
                    return; // the client refused the certificate
                };
                let mut inner = TcpStream::connect(inner).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut socket, &mut inner).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_provider_with_a_bad_certificate_gets_no_request_and_costs_nothing() {
    let upstream = FakeUpstream::start().await;
    let folder = TempDir::new().unwrap();
    let (roots, key) = (folder.path().join("roots.pem"), folder.path().join("key"));
    for (what, certificate, trusted, good) in [
        ("good", Certificate::generate(), true, true),
        ("not trusted", Certificate::generate(), false, false),
        ("expired", Certificate::expired(), true, false),
        (
            "of another name",
            Certificate::of("elsewhere.example"),
            true,
            false,
        ),
    ] {
        let other = Certificate::generate();
        let root = if trusted { &certificate } else { &other };
        root.write(&roots, &key);
        let port = behind(&certificate, upstream.address).await.port();
        let provider = format!("kind = \"openai\"\nbase_url = \"https://localhost:{port}/v1\"");
        let roots = [("SSL_CERT_FILE", roots.to_str().unwrap())];
        let serving = Serving::start_with(1, &provider, &roots).await;
        let calls = upstream.calls();
        for stream in [false, true] {
            let mut body = hello("svc-native-fast");
            body["stream"] = (stream && !good).into();
            let reply = serving.chat(&body).send().await.unwrap();
            let status = reply.status().as_u16();
            let body: Value = reply.json().await.unwrap();
            if good {
                assert_eq!(status, 200, "{what}: {body}");
                continue;
            }
            let error = &body["error"];
            let found = (status, &error["type"], &error["code"]);
            assert_eq!(
                found,
                (502, &"upstream_error".into(), &Value::Null),
                "{what}"
            );
            let shown = body.to_string();
            for hint in ["localhost", &port.to_string(), "ertificate"] {
                assert!(!shown.contains(hint), "{what}: {shown}");
            }
        }
        let expected = if good {
            ("99.9999908", 2)
        } else {
            ("100.000000", 0)
        };
        let (balance, charges) = serving.ledger_view().await;
        assert_eq!((balance.as_str(), charges), expected, "{what}");
        assert_eq!(upstream.calls() - calls, charges, "{what}");
    }
}
