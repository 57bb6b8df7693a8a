//! Journal of admissions on disk, so that a restarted gateway does not begin with empty windows.
//!
//! Each admission is appended to a file before its provider is called: one small write, which the operating system
//! keeps even if the process is killed. A power cut may lose it. Two files are written in rotation, each for a little
//! longer than a window, so the size is bounded. The tokens that a call used in the end are not in the journal: the
//! ledger has them.
//!
//! If a write fails, the admission is reported as not kept and its call must not go ahead.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

use crate::base::rate::WINDOW_MS;

/// How long a file is written to before the other is used. A little longer than a window, because a thread that loaded
/// the file handle just before the rotation still writes to the old file.
const ROTATE_MS: u64 = WINDOW_MS + 1_000;

/// An admission as the journal stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The call's number in the ledger.
    pub call: u64,
    /// When it was admitted, in milliseconds since 1970.
    pub at_ms: u64,
    /// The tokens that were reserved.
    pub tokens: u64,
    /// The key of its window: the account and the model.
    pub key: Arc<str>,
    /// Whether it is a further step of a request that was counted before.
    pub is_step: bool,
}

pub(crate) struct Journal {
    files: [PathBuf; 2],
    current: ArcSwap<File>,
    /// When the current file was started.
    began_ms: AtomicU64,
    /// The index of the current file; locked during a rotation.
    rotation: Mutex<usize>,
}

impl Journal {
    /// Opens the journal next to `database` and returns the entries of an earlier process that are still within the
    /// window, oldest first.
    pub(crate) fn open(database: &Path, now_ms: u64) -> std::io::Result<(Self, Vec<Admitted>)> {
        let files = ["minute-0", "minute-1"].map(|extension| sidecar(database, extension));
        let is_in_window = |entry: &Admitted| now_ms.saturating_sub(entry.at_ms) < WINDOW_MS;
        let mut kept = Vec::new();
        for file in &files {
            read(file, |entry| kept.extend(Some(entry).filter(is_in_window)));
        }
        kept.sort_by_key(|entry| (entry.at_ms, entry.call));
        // All of these entries go into the first file before the second is emptied, so that a crash loses none.
        let fresh = sidecar(database, "minute-new");
        let mut lines = BufWriter::new(create(&fresh)?);
        for entry in &kept {
            lines.write_all(line(entry).as_bytes())?;
        }
        lines.flush()?;
        drop(lines);
        std::fs::rename(&fresh, &files[0])?;
        create(&files[1])?;
        let journal = Self {
            current: ArcSwap::from_pointee(append_to(&files[0])?),
            files,
            began_ms: AtomicU64::new(now_ms),
            rotation: Mutex::new(0),
        };
        Ok((journal, kept))
    }

    /// Appends an admission. Once this has returned, the entry survives the death of the process.
    pub(crate) fn write(&self, entry: &Admitted) -> std::io::Result<()> {
        if self.is_full(entry.at_ms) {
            self.rotate(entry.at_ms)?;
        }
        // One write in append mode: lines of concurrent requests do not mix.
        let file = self.current.load();
        (&**file).write_all(line(entry).as_bytes())
    }

    fn is_full(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.began_ms.load(Ordering::Relaxed)) >= ROTATE_MS
    }

    /// Empties the other file, whose entries have all left the window, and makes it the current one.
    fn rotate(&self, now_ms: u64) -> std::io::Result<()> {
        let Ok(mut at) = self.rotation.try_lock() else {
            return Ok(()); // another thread is rotating; the old file still takes this entry
        };
        if !self.is_full(now_ms) {
            return Ok(());
        }
        let next = 1 - *at;
        create(&self.files[next])?;
        self.current.store(append_to(&self.files[next])?.into());
        self.began_ms.store(now_ms, Ordering::Relaxed);
        *at = next;
        Ok(())
    }
}

/// `database` with a further extension.
fn sidecar(database: &Path, extension: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}

/// Creates or truncates a file that only this user can read.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
}

fn append_to(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// Formats an entry: call, time, tokens and key, separated by spaces, with a `+` before a step.
///
/// Account IDs and catalog IDs have no spaces. The line starts with a newline of its own, because a crash may have cut
/// off the line before it.
fn line(entry: &Admitted) -> String {
    let Admitted {
        call,
        at_ms,
        tokens,
        key,
        is_step,
    } = entry;
    let mut line = String::with_capacity(3 * 20 + key.len() + 6);
    let mut number = itoa::Buffer::new();
    line.push_str(if *is_step { "\n+" } else { "\n" });
    for part in [call, at_ms, tokens] {
        line.push_str(number.format(*part));
        line.push(' ');
    }
    line.push_str(key);
    line.push('\n');
    line
}

/// Passes each entry of a file to `take`. Skips lines that cannot be parsed and those cut off, whose calls did not go
/// ahead.
///
/// A busy window has many entries with few keys, so the file is read line by line and each key is allocated once.
fn read(path: &Path, mut take: impl FnMut(Admitted)) {
    let Ok(file) = File::open(path) else { return };
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    let mut keys = HashSet::new();
    while file
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let whole = line
            .strip_suffix(b"\n")
            .and_then(|line| str::from_utf8(line).ok());
        if let Some(entry) = whole.and_then(|line| parse(line.trim_end(), &mut keys)) {
            take(entry);
        }
        line.clear();
    }
}

fn parse(line: &str, keys: &mut HashSet<Arc<str>>) -> Option<Admitted> {
    let mut fields = line.splitn(4, ' ');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (call, at_ms, tokens) = (number()?, number()?, number()?);
    let key = fields.next().filter(|key| key.contains(' '))?;
    let known = keys.get(key).cloned();
    let key = known.unwrap_or_else(|| {
        let key = Arc::<str>::from(key);
        keys.insert(key.clone());
        key
    });
    Some(Admitted {
        call,
        at_ms,
        tokens,
        key,
        is_step: line.starts_with('+'),
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn entry(call: u64, at_ms: u64) -> Admitted {
        Admitted {
            call,
            at_ms,
            tokens: 4_100,
            key: "acct_1 svc-standard".into(),
            is_step: false,
        }
    }

    #[test]
    fn a_step_is_read_back_as_one() {
        let step = Admitted {
            is_step: true,
            ..entry(7, 9)
        };
        for entry in [entry(7, 9), step] {
            let read = parse(line(&entry).trim(), &mut HashSet::new());
            assert_eq!(read, Some(entry));
        }
    }

    #[test]
    fn the_window_is_read_back_from_both_files() {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("t.db");
        let (journal, kept) = Journal::open(&database, 1_000).unwrap();
        assert_eq!(kept, []);
        let times = [1_000, 30_000, 62_500, 90_000, 123_600, 125_000];
        for (call, at) in (1..).zip(times) {
            journal.write(&entry(call, at)).unwrap();
        }
        drop(journal);
        let (journal, kept) = Journal::open(&database, 130_000).unwrap();
        assert_eq!(
            kept,
            [entry(4, 90_000), entry(5, 123_600), entry(6, 125_000)]
        );
        journal.write(&entry(7, 130_001)).unwrap();
        drop(journal);
        let (_, kept) = Journal::open(&database, 150_000).unwrap();
        let calls: Vec<_> = kept.iter().map(|entry| entry.call).collect();
        assert_eq!(
            calls,
            [5, 6, 7],
            "entries from before the first restart survive the second"
        );
    }

    #[test]
    fn truncated_and_malformed_lines_are_skipped() {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("t.db");
        drop(Journal::open(&database, 0).unwrap());
        let cut_off = "9 10 11 acct";
        let text = format!(
            "nonsense\n7 x 1 a m\n{cut_off}{}{cut_off}",
            line(&entry(1, 5))
        );
        std::fs::write(sidecar(&database, "minute-1"), text).unwrap();
        let (_, kept) = Journal::open(&database, 10).unwrap();
        assert_eq!(kept, [entry(1, 5)]);
    }

    #[test]
    fn a_failed_write_is_an_error() {
        let folder = TempDir::new().unwrap();
        let (journal, _) = Journal::open(&folder.path().join("t.db"), 0).unwrap();
        let full = append_to(Path::new("/dev/full")).unwrap();
        journal.current.store(full.into());
        assert!(journal.write(&entry(1, 1)).is_err());
    }

    #[test]
    fn the_files_do_not_grow_beyond_two_windows() {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("t.db");
        let (journal, _) = Journal::open(&database, 0).unwrap();
        for call in 0..10_000 {
            journal.write(&entry(call, call * 100)).unwrap();
        }
        let mut kept = 0;
        for extension in ["minute-0", "minute-1"] {
            read(&sidecar(&database, extension), |_| kept += 1);
        }
        assert!(kept <= 1_221, "{kept} entries of ten a second");
    }
}
