//! Files that the configuration names.
//!
//! Only regular files of a bounded size are read. A path can be typed in the console, and a pipe would make the gateway
//! wait there for ever, a device fill its memory.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use crate::base::checked_toml::{Value, as_text};

/// Most bytes of a catalog or a certificate.
const MOST: u64 = 16 << 20;
/// Most bytes of a file with a secret.
const MOST_OF_SECRET: u64 = 64 << 10;

/// The path of a file that can be read.
pub(super) fn readable_file(value: &Value) -> Option<PathBuf> {
    let path = PathBuf::from(as_text(value)?);
    read(&path, MOST).ok().map(|_| path)
}

/// The text of the file with a secret that the value names, without white space around it.
pub(super) fn secret_of_file(value: &Value) -> Option<String> {
    let secret = read(Path::new(&as_text(value)?), MOST_OF_SECRET).ok()?;
    let secret = String::from_utf8(secret).ok()?;
    Some(secret.trim().to_owned())
}

pub(super) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path, MOST)?).map_err(io::Error::other)
}

fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Before it is opened, because opening a pipe waits for its other end.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    // Some files of the system have no size until they are read.
    File::open(path)?.take(most + 1).read_to_end(&mut content)?;
    if content.len() as u64 > most {
        return Err(io::Error::other("it is too large"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let folder = TempDir::new().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, " sk-1\n").unwrap();
        let linked = folder.path().join("linked");
        std::os::unix::fs::symlink(&secret, &linked).unwrap();
        let named = |path: &Path| Value::Text(path.display().to_string());
        for path in [&secret, &linked] {
            assert_eq!(secret_of_file(&named(path)).as_deref(), Some("sk-1"));
            assert_eq!(readable_file(&named(path)).as_ref(), Some(path));
        }
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let long = folder.path().join("long");
        std::fs::write(&long, vec![b'a'; (64 << 10) + 1]).unwrap();
        assert_eq!(secret_of_file(&named(&long)), None);
        assert!(readable_file(&named(&long)).is_some());
        for path in [&pipe, Path::new("/dev/zero"), folder.path()] {
            assert_eq!(secret_of_file(&named(path)), None, "{}", path.display());
            assert_eq!(readable_file(&named(path)), None, "{}", path.display());
            assert!(read_text(path).is_err());
        }
    }
}
