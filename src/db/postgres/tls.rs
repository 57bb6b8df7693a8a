//! Encryption, in the five ways that libpq knows.

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
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use tokio_postgres_rustls::MakeRustlsConnect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Encrypted where the server can.
    Prefer,
    Require,
    /// The certificate is of somebody whom the roots vouch for.
    VerifyCa,
    /// And that is the host that was asked for.
    VerifyFull,
}

/// A mode, and what it needs to shake hands.
#[derive(Clone)]
pub struct Tls {
    pub mode: SslMode,
    pub connector: MakeRustlsConnect,
}

impl SslMode {
    pub fn parse(text: &str) -> Option<Self> {
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
    /// Reads the file of roots once, so that a mistake shows at the start.
    pub fn new(mode: SslMode, roots: Option<PathBuf>) -> Result<Self, String> {
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
            // Anybody on the internet has a certificate that the system's roots vouch for.
            _ if system => {
                return Err("needs `sslmode=verify-full` with `sslrootcert=system`".into());
            }
            (SslMode::VerifyCa, None) => {
                return Err("needs `sslrootcert=PATH` with `sslmode=verify-ca`".into());
            }
            // As libpq does: roots that are given are used.
            (SslMode::VerifyCa | SslMode::Require | SslMode::Prefer, Some(roots)) => builder
                .dangerous()
                .with_custom_certificate_verifier(AnyName::new(roots, provider)?)
                .with_no_client_auth(),
            (SslMode::Disable, _) | (SslMode::Require | SslMode::Prefer, None) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
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

/// Whoever the roots vouch for, whatever the name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl AnyName {
    fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Result<Arc<Self>, String> {
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
        let verifier = verifier
            .build()
            .map_err(|error| format!("has roots that cannot be used: {error}"))?;
        Ok(Arc::new(Self(verifier)))
    }
}

impl ServerCertVerifier for AnyName {
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
            // The name is looked at last, when everything else was found to be right.
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

/// Encrypted, but to whom is not looked at: what `require` and `prefer` mean without roots.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
