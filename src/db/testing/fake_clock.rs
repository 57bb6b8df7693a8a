//! A clock for a server, which a test can set while the server runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Of libfaketime, which `scripts/install-servers` installs.
pub struct FakeClock {
    library: PathBuf,
    /// By how many seconds it differs from the machine's.
    file: PathBuf,
}

impl FakeClock {
    /// Right until it is set; kept in a folder that the server can read.
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

    pub fn set(&self, seconds: i64) {
        // At once: the server may read it at any moment.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds:+}")).unwrap();
        fs::rename(&next, &self.file).unwrap();
    }

    /// Removes what the library leaves of a server that was killed: the next process of that number may be
    /// another user's.
    pub fn clear(pid: u32) {
        for name in [
            format!("sem.faketime_sem_{pid}"),
            format!("faketime_shm_{pid}"),
        ] {
            let _ = fs::remove_file(Path::new("/dev/shm").join(name));
        }
    }

    /// What the server needs in its environment.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        // With the C library's own `malloc`: another one may ask for the time before there is one.
        let preload = format!("{}:libc.so.6", self.library.display());
        [
            ("LD_PRELOAD", preload),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}
