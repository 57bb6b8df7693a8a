//! A fake clock for a server process, which a test can set while the server runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A clock by libfaketime, which `scripts/install-servers` installs.
pub struct FakeClock {
    library: PathBuf,
    /// The file from which the library reads the offset to the machine's clock, in seconds.
    file: PathBuf,
}

impl FakeClock {
    /// A clock without an offset, with its file in a folder that the server can read.
    pub fn in_folder(folder: &Path) -> Self {
        let folders = fs::read_dir("/usr/lib").into_iter().flatten();
        let mut libraries = folders
            .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketime.so.1")));
        let library = libraries.find(|library| library.exists());
        let clock = Self {
            library: library.expect("libfaketime: `apt-get install faketime`"),
            file: folder.join("clock"),
        };
        clock.set(0);
        clock
    }

    /// Sets the offset to the machine's clock.
    pub fn set(&self, seconds: i64) {
        // Replaced atomically, because the server may read the file at any moment.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}")).unwrap();
        fs::rename(&next, &self.file).unwrap();
    }

    /// Removes the shared-memory files that the library leaves behind when a server is killed: the next process with
    /// that ID may belong to another user and could not open them.
    pub fn clear(pid: u32) {
        for name in [
            format!("sem.faketime_sem_{pid}"),
            format!("faketime_shm_{pid}"),
        ] {
            let _ = fs::remove_file(Path::new("/dev/shm").join(name));
        }
    }

    /// The environment variables that the server needs.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        // Forces the C library's `malloc`: another one may read the time before the library is initialized.
        let preload = format!("{}:libc.so.6", self.library.display());
        [
            ("LD_PRELOAD", preload),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}
