//! A TLS client that trusts exactly one certificate.

use std::{net::SocketAddr, path::Path, sync::Arc};

use http_body_util::Empty;
use hyper::{Request, body::Bytes};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A self-signed certificate and its key.
pub struct Certificate {
    made: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Certificate {
    /// For `localhost`.
    pub fn generate() -> Self {
        Self::of("localhost")
    }

    /// For another name.
    pub fn of(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        Self { made }
    }

    /// For `localhost`, expired years ago.
    pub fn expired() -> Self {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let signing_key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&signing_key).unwrap();
        let made = rcgen::CertifiedKey { cert, signing_key };
        Self { made }
    }

    pub fn write(&self, cert: &Path, key: &Path) {
        std::fs::write(cert, self.made.cert.pem()).unwrap();
        std::fs::write(key, self.made.signing_key.serialize_pem()).unwrap();
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        let key = self.made.signing_key.serialize_der();
        PrivateKeyDer::try_from(key).unwrap()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.made.cert.der().clone()
    }
}

/// Negotiated protocol and received response.
#[derive(Debug, PartialEq)]
pub struct Met {
    pub protocol: String,
    pub version: hyper::Version,
    pub status: u16,
}

/// Connects as a client that trusts only `certificate` and offers `protocols`.
pub async fn connect(
    address: SocketAddr,
    certificate: &Certificate,
    protocols: &[&str],
) -> Result<TlsStream<TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let socket = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, socket);
    connecting.await.map_err(|error| error.to_string())
}

/// `GET path` on such a connection.
pub async fn get(
    address: SocketAddr,
    certificate: &Certificate,
    protocols: &[&str],
    path: &str,
) -> Result<Met, String> {
    let socket = connect(address, certificate, protocols).await?;
    let agreed = socket.get_ref().1.alpn_protocol().unwrap_or_default();
    let protocol = String::from_utf8(agreed.to_vec()).unwrap();
    let request = |uri: String| {
        let request = Request::builder().uri(uri).header("host", "localhost");
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    let socket = TokioIo::new(socket);
    let answered = if protocol == "h2" {
        let opened = hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await;
        let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        sender
            .send_request(request(format!("https://localhost{path}")))
            .await
    } else {
        let opened = hyper::client::conn::http1::handshake(socket).await;
        let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        sender.send_request(request(path.to_owned())).await
    };
    let response = answered.map_err(|error| error.to_string())?;
    Ok(Met {
        protocol,
        version: response.version(),
        status: response.status().as_u16(),
    })
}
