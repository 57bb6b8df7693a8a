//! TLS with the five values of libpq's `sslmode` that are supported.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::net::no_verification::NoVerification;

/// Whether a connection is encrypted, and how the server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    /// Encrypted if the server supports it.
    Prefer,
    Require,
    /// The certificate must be signed by one of the roots.
    VerifyCa,
    /// The certificate must be signed by one of the roots and be valid for the host's name.
    VerifyFull,
}

/// A mode and the TLS connector for it.
#[derive(Clone)]
pub(crate) struct Tls {
    pub mode: SslMode,
    pub connector: MakeRustlsConnect,
}

impl SslMode {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

impl Tls {
    /// Reads the file of root certificates once, so that a mistake shows at the start.
    pub(crate) fn new(mode: SslMode, roots: Option<PathBuf>) -> Result<Self, String> {
        let system = roots
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "system");
        let roots = roots.filter(|_| !system);
        let roots = roots.as_deref().map(read_roots).transpose()?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot be used with TLS: {error}"))?;
        let config = match (mode, roots) {
            (SslMode::VerifyFull, Some(roots)) => {
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            (SslMode::VerifyFull, None) => builder
                .with_native_roots()
                .map_err(|error| format!("needs the system's certificates, but {error}"))?
                .with_no_client_auth(),
            // Anyone can get a certificate signed by the system's roots, so without the host's name it proves nothing.
            _ if system => {
                return Err("needs `sslmode=verify-full` with `sslrootcert=system`".into());
            }
            (SslMode::VerifyCa, None) => {
                return Err("needs `sslrootcert=PATH` with `sslmode=verify-ca`".into());
            }
            // As in libpq, roots that are given are used in every mode.
            (SslMode::VerifyCa | SslMode::Require | SslMode::Prefer, Some(roots)) => builder
                .dangerous()
                .with_custom_certificate_verifier(AnyHostName::new(roots, provider)?)
                .with_no_client_auth(),
            // The meaning of `require` and `prefer` without roots: the connection is only encrypted.
            (SslMode::Disable, _) | (SslMode::Require | SslMode::Prefer, None) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
                .with_no_client_auth(),
        };
        Ok(Self {
            mode,
            connector: MakeRustlsConnect::new(config),
        })
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let shown = path.display();
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path)
        .map_err(|error| format!("names `sslrootcert={shown}`, which cannot be read: {error}"))?;
    for certificate in certificates {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|error| {
            format!("names `sslrootcert={shown}`, which has a bad certificate: {error}")
        })?;
    }
    if roots.is_empty() {
        return Err(format!(
            "names `sslrootcert={shown}`, which has no certificate"
        ));
    }
    Ok(roots)
}

/// Accepts certificates that are signed by one of the roots, whatever their host name.
#[derive(Debug)]
struct AnyHostName(Arc<WebPkiServerVerifier>);

impl AnyHostName {
    fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Arc<Self>, String> {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let verifier = verifier
            .build()
            .map_err(|error| format!("has roots that cannot be used: {error}"))?;
        Ok(Arc::new(Self(verifier)))
    }
}

impl ServerCertVerifier for AnyHostName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is checked last, so everything else is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
