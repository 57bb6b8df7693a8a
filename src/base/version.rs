//! Version of this program and the commit it was built from, which `build/commit.rs` finds.

/// For example `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit in seven digits; `None` if neither a repository nor `TOLLGATE_COMMIT` told it to the build.
pub const COMMIT: Option<&str> = option_env!("TOLLGATE_BUILT_COMMIT");

/// Day (UTC) of that commit, for example `2026-11-19`.
pub const COMMIT_DATE: Option<&str> = option_env!("TOLLGATE_BUILT_COMMIT_DATE");

/// Everything that is known, for example `0.1.0 (23b1c89 2026-11-19)`.
pub const FULL_VERSION: &str = env!("TOLLGATE_BUILT_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_version_has_what_is_known() {
        let known = [COMMIT, COMMIT_DATE].into_iter().flatten();
        let known = known.collect::<Vec<_>>().join(" ");
        let expected = match known.as_str() {
            "" => VERSION.to_owned(),
            known => format!("{VERSION} ({known})"),
        };
        assert_eq!(FULL_VERSION, expected);
    }
}
