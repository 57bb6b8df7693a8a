//! Names that people give to keys and projects.

/// The most characters of a name.
pub(crate) const MAX_NAME: usize = 100;

/// The trimmed name, unless it is empty, too long or of several lines.
pub(crate) fn checked(name: &str) -> Option<&str> {
    let name = name.trim();
    let is_name =
        !name.is_empty() && name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    is_name.then_some(name)
}
