//! A change of one optional value.

/// What becomes of a value that can be set or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Edit<T> {
    #[default]
    Keep,
    Set(T),
    Clear,
}

impl<T> Edit<T> {
    pub(super) fn applied_to(self, before: Option<T>) -> Option<T> {
        match self {
            Self::Keep => before,
            Self::Set(value) => Some(value),
            Self::Clear => None,
        }
    }

    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> Edit<U> {
        match self {
            Self::Keep => Edit::Keep,
            Self::Set(value) => Edit::Set(map(value)),
            Self::Clear => Edit::Clear,
        }
    }

    /// Checks or converts a value that is to be set.
    pub(crate) fn try_map<U, E>(self, map: impl FnOnce(T) -> Result<U, E>) -> Result<Edit<U>, E> {
        Ok(match self {
            Self::Keep => Edit::Keep,
            Self::Set(value) => Edit::Set(map(value)?),
            Self::Clear => Edit::Clear,
        })
    }
}
