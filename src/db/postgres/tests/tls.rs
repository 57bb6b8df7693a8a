use super::*;

#[tokio::test]
async fn each_mode_encrypts_and_checks_as_libpq_does() {
    let server = PostgresServer::own();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let roots = server.write_file("root.pem", &made.cert.pem());
    let others = server.write_file("other.pem", &other.cert.pem());
    let key = server.write_file("key.pem", &made.signing_key.serialize_pem());
    let config = format!(
        "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
        roots.display(),
        key.display()
    );
    server.write_file("data/postgresql.auto.conf", &config);
    server.kill();
    server.start();
    let (roots, others) = (roots.display(), others.display());
    for (host, settings, expected) in [
        ("localhost", "sslmode=disable", Ok(false)),
        ("localhost", "sslmode=prefer", Ok(true)),
        ("localhost", "", Ok(true)),
        ("127.0.0.1", "sslmode=require", Ok(true)),
        (
            "127.0.0.1",
            &format!("sslmode=require&sslrootcert={roots}"),
            Ok(true),
        ),
        (
            "127.0.0.1",
            &format!("sslmode=require&sslrootcert={others}"),
            Err("certificate"),
        ),
        (
            "127.0.0.1",
            &format!("sslmode=verify-ca&sslrootcert={roots}"),
            Ok(true),
        ),
        (
            "localhost",
            &format!("sslmode=verify-ca&sslrootcert={others}"),
            Err("certificate"),
        ),
        (
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={roots}"),
            Ok(true),
        ),
        (
            "127.0.0.1",
            &format!("sslmode=verify-full&sslrootcert={roots}"),
            Err("not valid for name"),
        ),
        (
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={others}"),
            Err("certificate"),
        ),
    ] {
        let port = server.port();
        let url = format!("postgres://postgres@{host}:{port}/postgres?{settings}");
        match (is_encrypted(&url).await, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{url}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{url}: {error}");
                assert!(!error.is_transient(), "{url}: {error}");
            }
            (found, expected) => panic!("{url}: {found:?}, not {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let url = format!("{}?sslmode=require", PostgresServer::shared().database());
    let refused = address(&url).connect().await.err().unwrap();
    assert!(refused.to_string().contains("TLS"), "{refused}");
    assert!(!refused.is_transient());
}

async fn is_encrypted(url: &str) -> Result<bool, Error> {
    let connected = address(url).connect().await?;
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    Ok(connected.query_typed_one(query, &[]).await?.try_get(0)?)
}
