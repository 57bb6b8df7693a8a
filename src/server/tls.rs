//! The certificate: loaded at the start, exchanged while running when its files change.

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

const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Certificate {
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
    pub fn load(files: &TlsFiles) -> Result<Self, StartError> {
        let key = read(files)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(key)));
        Ok(Self {
            files: files.clone(),
            current,
        })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_no_client_auth()
            .with_cert_resolver(self.current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config).into()
    }

    /// Looks at the files until the gateway stops. A pair that cannot be used changes nothing.
    pub async fn reload_on_change(self, shutdown: Shutdown) {
        let mut seen = stamps(&self.files);
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
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
                    tracing::info!("the TLS certificate has been reloaded");
                }
                Err(error) => {
                    tracing::error!(%error, "the changed TLS certificate cannot be used; the old one stays");
                }
            }
        }
    }
}

fn stamps(files: &TlsFiles) -> [Option<(SystemTime, u64)>; 2] {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    [stamp(&files.cert), stamp(&files.key)]
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, StartError> {
    let wrong = |file: &Path, reason: String| StartError::Certificate {
        file: file.to_owned(),
        reason,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.cert, error.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong(
            &files.cert,
            "it holds no certificate in PEM form".into(),
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| wrong(&files.key, error.to_string()))?;
    CertifiedKey::from_der(certificates, key, &ring::default_provider()).map_err(|error| {
        wrong(
            &files.key,
            format!("it does not fit the certificate: {error}"),
        )
    })
}
