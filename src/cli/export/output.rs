//! Where the rows go: standard output or a new file.

use std::{
    io::{self, Write as _},
    path::Path,
};

use crate::cli::new_file::NewFile;

pub(crate) enum Output {
    Stdout,
    File(NewFile),
}

impl Output {
    /// A file that must not exist yet.
    pub(crate) fn file(path: &Path) -> Result<Self, String> {
        NewFile::create(path).map(Self::File)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().write_all(bytes),
            Self::File(new) => new.file.write_all(bytes),
        }
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::File(new) => new.finish().map(|_| ()),
        }
    }
}
