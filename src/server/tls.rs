//! The TLS certificate: loaded at the start, and replaced while the gateway runs when its files change.
//!
//! If the changed files cannot be used, the certificate in use stays.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::TlsAcceptor;

use super::StartError;
use crate::{config::TlsFiles, net::shutdown::Shutdown};

/// Time between two checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Certificate {
    files: TlsFiles,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, StartError> {
        let key = read(files)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(key)));
        Ok(Self {
            files: files.clone(),
            current,
        })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config).into()
    }

    /// Reloads the certificate when its files change, until shutdown is requested.
    pub(crate) async fn reload_on_change(self, shutdown: Shutdown) {
        let mut seen = stamps(&self.files);
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = shutdown.requested() => return,
            }
            let now = stamps(&self.files);
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.files) {
                Ok(key) => {
                    self.current.0.store(Arc::new(key));
                    tracing::info!("TLS certificate reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "the changed TLS certificate cannot be used; the previous one stays in use");
                }
            }
        }
    }
}

/// Returns modification time and size of both files, by which changes are detected.
fn stamps(files: &TlsFiles) -> [Option<(SystemTime, u64)>; 2] {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    [stamp(&files.cert), stamp(&files.key)]
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, StartError> {
    let failed = |file: &Path, reason: String| StartError::Certificate {
        file: file.to_owned(),
        reason,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| failed(&files.cert, error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed(
            &files.cert,
            "the file has no certificate in PEM format".into(),
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| failed(&files.key, error.to_string()))?;
    CertifiedKey::from_der(certificates, key, &ring::default_provider()).map_err(|error| {
        failed(
            &files.key,
            format!("the key does not match the certificate: {error}"),
        )
    })
}
