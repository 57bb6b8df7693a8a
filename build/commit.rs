//! Finds the commit that the program is built from, for `tollgate --version` and `tollgate_build_info`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Commit and date; the date is empty if it is not known.
type Commit = (String, String);

/// Gives the compiler the version with its commit, as `src/base/version.rs` reads it.
pub fn export() {
    for variable in ["TOLLGATE_COMMIT", "TOLLGATE_COMMIT_DATE"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let full = match of_repository().or_else(of_environment) {
        None => version,
        Some((commit, date)) => {
            println!("cargo:rustc-env=TOLLGATE_BUILT_COMMIT={commit}");
            if date.is_empty() {
                format!("{version} ({commit})")
            } else {
                println!("cargo:rustc-env=TOLLGATE_BUILT_COMMIT_DATE={date}");
                format!("{version} ({commit} {date})")
            }
        }
    };
    println!("cargo:rustc-env=TOLLGATE_BUILT_VERSION={full}");
}

/// The commit that is checked out here. A repository of a folder above, into which a tarball of the source was unpacked,
/// is another project's.
fn of_repository() -> Option<Commit> {
    if !Path::new(".git").exists() {
        return None;
    }
    watch();
    let date = ["--date=format-local:%Y-%m-%d", "--format=%h %cd"];
    let shown = git(&[&["-c", "core.abbrev=7", "show", "--no-patch"], &date[..]].concat())?;
    let (commit, date) = shown.split_once(' ')?;
    Some((commit.to_owned(), date.to_owned()))
}

/// Runs the build script again after the next commit and after a checkout. A file that does not exist must not be named:
/// cargo would run it each time.
fn watch() {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let names = [Some("HEAD".to_owned()), branch];
    for name in names.into_iter().flatten() {
        let Some(path) = git(&["rev-parse", "--git-path", &name]) else {
            continue;
        };
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
            continue;
        }
        // The next commit of a packed branch writes its file: a new one in this folder.
        let folder = Path::new(&path).parent().map(Path::to_owned);
        let packed = git(&["rev-parse", "--git-path", "packed-refs"]).map(PathBuf::from);
        for path in [folder, packed].into_iter().flatten() {
            if path.exists() {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
    }
}

/// For builds without a repository: from a tarball, or in a container.
fn of_environment() -> Option<Commit> {
    let value = |name| Some(env::var(name).ok()?.trim().to_owned());
    let commit = value("TOLLGATE_COMMIT").filter(|commit| !commit.is_empty())?;
    let short = commit.chars().take(7).collect();
    Some((short, value("TOLLGATE_COMMIT_DATE").unwrap_or_default()))
}

/// What git prints; `None` if it fails, for example because the repository belongs to another user.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .env("TZ", "UTC")
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
