//! A file that appears under its name when it is complete.
//!
//! Until then it is `NAME.part`, which is removed on a failure. A process that is killed leaves it; the next one
//! overwrites it.

use std::{
    fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A file that is being written, readable by this user alone.
pub(crate) struct NewFile {
    pub file: File,
    path: PathBuf,
    part: PathBuf,
}

impl NewFile {
    /// Fails if there is a file of that name, or if another process is writing it.
    pub(crate) fn create(path: &Path) -> Result<Self, String> {
        refuse_to_overwrite(path)?;
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let shown = part.display();
        let failed = |error: io::Error| format!("{shown} cannot be written: {error}");
        let mut create = OpenOptions::new();
        let create = create.read(true).write(true).create(true).truncate(false);
        let file = create.mode(0o600).open(&part).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another process is writing {shown}; choose another file or wait for it"
                ));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // What another process left may have another mode.
        let private = file.set_permissions(Permissions::from_mode(0o600));
        private.and_then(|()| file.set_len(0)).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            part,
        })
    }

    /// Where it is until it is complete.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// Flushes it to the disk and gives it its name. Returns its size.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        let size = self.file.metadata()?.len();
        if self.path.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} has appeared meanwhile", self.path.display()),
            ));
        }
        std::fs::rename(&self.part, &self.path)?;
        // From here on that name may be another process's.
        self.part.clear();
        sync_folder(&self.path)?;
        Ok(size)
    }
}

impl Drop for NewFile {
    /// Removes what is not complete; after [`Self::finish`] there is nothing to remove.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.part);
    }
}

pub(crate) fn refuse_to_overwrite(path: &Path) -> Result<(), String> {
    // A dangling link counts: it would be replaced.
    if path.symlink_metadata().is_ok() {
        let path = path.display();
        return Err(format!(
            "{path} exists and is not overwritten; remove it or choose another name"
        ));
    }
    Ok(())
}

/// Creates the folder that this file will be in, if there is none, for this user alone.
pub(crate) fn create_private_folder(path: &Path) -> Result<(), String> {
    let folder = folder_of(path);
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| format!("{} cannot be created: {error}", folder.display()))
}

/// Makes the file's name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent();
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tempfile::TempDir;

    use super::*;

    fn names(folder: &TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn it_has_its_name_when_it_is_complete() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("new.csv");
        // What a killed process left is overwritten.
        std::fs::write(folder.path().join("new.csv.part"), "left behind").unwrap();
        let mut new = NewFile::create(&path).unwrap();
        new.file.write_all(b"rows").unwrap();
        assert_eq!(names(&folder), ["new.csv.part"]);
        let second = NewFile::create(&path).err().unwrap();
        assert!(second.contains("another process is writing"), "{second}");
        assert_eq!(new.finish().unwrap(), 4);
        assert_eq!(names(&folder), ["new.csv"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"rows");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn it_neither_overwrites_nor_leaves_half_a_file() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("new.csv");
        drop(NewFile::create(&path).unwrap());
        assert!(names(&folder).is_empty());
        let late = NewFile::create(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        let error = late.finish().unwrap_err();
        assert!(error.to_string().contains("appeared meanwhile"), "{error}");
        let error = NewFile::create(&path).err().unwrap();
        assert!(error.contains("is not overwritten"), "{error}");
        assert_eq!(names(&folder), ["new.csv"]);
        assert_eq!(std::fs::read(&path).unwrap(), b"another");
    }
}
