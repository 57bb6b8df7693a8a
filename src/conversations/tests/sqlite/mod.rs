//! Tests of the SQLite file.

use super::*;

mod faults;
mod files;

impl Given {
    fn file(&self) -> PathBuf {
        let Place::Folder(folder) = &self.place else {
            unreachable!("a file has a folder")
        };
        file_in(folder)
    }

    fn sqlite_store(&self) -> &SqliteStore {
        let Conversations::File(file) = &*self.conversations else {
            unreachable!("it was opened as a file")
        };
        file
    }
}
