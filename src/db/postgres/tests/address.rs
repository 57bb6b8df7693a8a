use std::time::Duration;

use super::*;
use crate::db::postgres::{address::HostName, tls::SslMode};

#[test]
fn a_url_is_shown_without_its_password() {
    for (url, shown) in [
        ("postgres://u:hush@h/db", "postgres://u@h:5432/db"),
        ("postgresql://u:hush@h:1", "postgres://u@h:1/u"),
        ("postgres://u@h/?sslmode=disable", "postgres://u@h:5432/u"),
        (
            "postgres://u:hush@[::1]:7,h2/db",
            "postgres://u@[::1]:7,h2:5432/db",
        ),
        (
            "postgres://u:hu%40%2F%3Ash@a:1,b:2,c:3/d%20b",
            "postgres://u@a:1,b:2,c:3/d b",
        ),
        (
            "postgres://u@%2Frun%2Fpostgresql/db",
            "postgres://u@/run/postgresql:5432/db",
        ),
    ] {
        let read = address(url);
        assert_eq!(read.to_string(), shown, "{url}");
        assert_eq!(format!("{read:?}"), format!("Address({shown})"), "{url}");
    }
}

#[test]
fn a_url_is_read_as_libpq_reads_it() {
    let read = address("postgres://us%65r:p%40ss:w%2Frd@h/db");
    assert_eq!(read.user, "user");
    assert_eq!(read.password.unwrap().reveal(), "p@ss:w/rd");
    assert_eq!(read.tls.mode, SslMode::Prefer);
    assert_eq!(read.deadline, Duration::from_secs(2));
    assert_eq!(read.application_name, "tollgate");
    assert!(!read.writable_only, "it is the only host");

    let read = address(
        "postgres://u@h/db?sslmode=require&connect_timeout=5&application_name=a%20b\
         &target_session_attrs=read-write",
    );
    assert!(read.password.is_none());
    assert_eq!(read.tls.mode, SslMode::Require);
    assert_eq!(read.deadline, Duration::from_secs(5));
    assert_eq!(read.application_name, "a b");
    assert!(read.writable_only);

    assert!(address("postgres://u@h1,h2/db").writable_only);
    assert!(!address("postgres://u@h1,h2/db?target_session_attrs=any").writable_only);
    let socket = &address("postgres://u@%2Frun/db").hosts[0].name;
    assert_eq!(*socket, HostName::Socket("/run".into()));
}

#[test]
fn a_mistake_is_named_without_the_password() {
    for (url, expected) in [
        ("mysql://u:hush@h/db", "does not start with `postgres://`"),
        ("postgres://h/db", "names no user"),
        ("postgres://:hush@h/db", "names no user"),
        ("postgres://u:hush@/db", "names no host"),
        ("postgres://u:hush@a,,b/db", "names no host"),
        ("postgres://u:hush@h:0/db", "port"),
        ("postgres://u:hush@h:65536/db", "port"),
        ("postgres://u:hush@h:x/db", "port"),
        ("postgres://u:hush@[::1/db", "without `]`"),
        ("postgres://u:%ff@h/db", "password that is not UTF-8"),
        ("postgres://u:hush%00@h/db", "zero byte"),
        ("postgres://u:hush@h/db?sslmode=allow", "`sslmode`"),
        (
            "postgres://u:hush@h/db?sslmode=verify-ca",
            "`sslrootcert=PATH`",
        ),
        (
            "postgres://u:hush@h/db?sslmode=require&sslrootcert=system",
            "`sslmode=verify-full`",
        ),
        (
            "postgres://u:hush@h/db?sslrootcert=/nowhere",
            "cannot be read",
        ),
        (
            "postgres://u:hush@h/db?sslrootcert=/dev/null",
            "no certificate",
        ),
        (
            "postgres://u:hush@h/db?connect_timeout=0",
            "`connect_timeout`",
        ),
        ("postgres://u:hush@h/db?options=-c%20a%3Db", "not known"),
        (
            "postgres://u:hush@h/db?target_session_attrs=standby",
            "`target_session_attrs`",
        ),
        // Passwords with unescaped characters.
        ("postgres://u:hush/hush@h/db", ""),
        ("postgres://u:hush?hush@h/db", ""),
    ] {
        let mistake = Address::parse(url).unwrap_err();
        assert!(mistake.contains(expected), "{url}: {mistake}");
        assert!(!mistake.contains("hush"), "{url}: {mistake}");
    }
}

#[test]
fn transient_codes_are_distinguished_from_mistakes() {
    for (code, is_transient) in [
        ("08006", true),
        ("57P01", true),
        ("57014", true),
        ("53300", true),
        ("40001", true),
        ("40P01", true),
        ("55P03", true),
        ("25006", true),
        ("23505", false),
        ("42P01", false),
        ("28P01", false),
        ("55000", false),
        ("25001", false),
    ] {
        let (code, message) = (code.to_owned(), String::new());
        let refused = Error::Refused { code, message };
        assert_eq!(refused.is_transient(), is_transient, "{refused}");
    }
}
