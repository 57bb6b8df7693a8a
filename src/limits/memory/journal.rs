//! The last minute on disk, so that a restart does not hand out a fresh one.
//!
//! Each admission is appended to a file before its provider is asked: one small write, which the
//! system keeps though the process be killed. Two files take turns, each for as long as a window
//! lasts, so what is kept is bounded. What a call used in the end is not repeated here: the ledger
//! has it.

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

/// How long a file is written to: a little longer than a window, because whoever was about to write
/// to it when it was left still does.
const TURN_MS: u64 = WINDOW_MS + 1_000;

/// An admission as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The call's number in the ledger.
    pub call: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub tokens: u64,
    /// The window it is in: an account and a model.
    pub key: Arc<str>,
    /// It is a further step of a request that was counted before.
    pub is_step: bool,
}

pub struct Journal {
    files: [PathBuf; 2],
    current: ArcSwap<File>,
    /// When the current file was begun.
    began_ms: AtomicU64,
    turning: Mutex<usize>,
}

impl Journal {
    /// Reads what an earlier process left beside `database`, oldest first, and goes on from there.
    pub fn open(database: &Path, now_ms: u64) -> std::io::Result<(Self, Vec<Admitted>)> {
        let files = ["minute-0", "minute-1"].map(|extension| beside(database, extension));
        let still_counts = |entry: &Admitted| now_ms.saturating_sub(entry.at_ms) < WINDOW_MS;
        let mut kept = Vec::new();
        for file in &files {
            read(file, |entry| kept.extend(Some(entry).filter(still_counts)));
        }
        kept.sort_by_key(|entry| (entry.at_ms, entry.call));
        // Everything that still counts goes into one file before the other is emptied.
        let fresh = beside(database, "minute-new");
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
            turning: Mutex::new(0),
        };
        Ok((journal, kept))
    }

    /// Writes an admission down. When this returns, killing the process does not undo it.
    pub fn write(&self, entry: &Admitted) -> std::io::Result<()> {
        if self.is_full(entry.at_ms) {
            self.turn(entry.at_ms)?;
        }
        // One write to the end of the file: lines of requests side by side do not mix.
        let file = self.current.load();
        (&**file).write_all(line(entry).as_bytes())
    }

    fn is_full(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.began_ms.load(Ordering::Relaxed)) >= TURN_MS
    }

    /// Goes on in the other file, whose entries have all left the window.
    fn turn(&self, now_ms: u64) -> std::io::Result<()> {
        let Ok(mut at) = self.turning.try_lock() else {
            return Ok(()); // someone else is at it, and the old file does for now
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

fn beside(database: &Path, extension: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}

/// Empty, and for this user alone.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true);
    options.mode(0o600).open(path)
}

fn append_to(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

/// IDs of ours and catalog IDs have no spaces; a step has a plus before its number. It begins on a
/// line of its own, whatever became of the one before it.
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

/// The whole lines of a file, one after the other; one that was cut off was never acted on.
///
/// A busy minute has many, of few keys: the file is never in memory as a whole, and each key is there once.
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
    let mut words = line.splitn(4, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (call, at_ms, tokens) = (number()?, number()?, number()?);
    let key = words.next().filter(|key| key.contains(' '))?;
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
    fn the_last_minute_is_read_back_whatever_file_it_is_in() {
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
        assert_eq!(calls, [5, 6, 7], "what was kept once is kept again");
    }

    #[test]
    fn a_line_that_was_cut_off_and_one_that_makes_no_sense_are_passed_over() {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("t.db");
        drop(Journal::open(&database, 0).unwrap());
        let cut_off = "9 10 11 acct";
        let text = format!(
            "nonsense\n7 x 1 a m\n{cut_off}{}{cut_off}",
            line(&entry(1, 5))
        );
        std::fs::write(beside(&database, "minute-1"), text).unwrap();
        let (_, kept) = Journal::open(&database, 10).unwrap();
        assert_eq!(kept, [entry(1, 5)]);
    }

    #[test]
    fn what_the_disk_does_not_take_is_an_error() {
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
            read(&beside(&database, extension), |_| kept += 1);
        }
        assert!(kept <= 1_221, "{kept} entries of ten a second");
    }
}
