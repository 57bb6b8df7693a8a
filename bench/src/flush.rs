//! The time of one disk flush: with durable charges, the gateway cannot respond sooner than that.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use crate::Done;

/// As many bytes as the gateway writes for a charge.
const BYTES: usize = 4_120;
/// The file is overwritten from the start after this many writes, as a log is.
const PLACES: usize = 1_000;

/// The disk of a folder, and its flush time in each round.
pub struct Disk {
    file: File,
    place: usize,
    pub middles_ms: Vec<f64>,
}

impl Disk {
    pub fn of(folder: &Path) -> Done<Self> {
        let file = File::create(folder.join("flushed"))?;
        file.write_all_at(&vec![1; PLACES * BYTES], 0)?;
        file.sync_all()?;
        Ok(Self {
            file,
            place: 0,
            middles_ms: Vec::new(),
        })
    }

    /// Flushes at a steady rate for a second and records the median.
    pub fn measure(&mut self, rate: u32) -> Done {
        let mut took = Vec::new();
        for _ in 0..rate {
            sleep(Duration::from_secs(1) / rate);
            self.place = (self.place + 1) % PLACES;
            let started = Instant::now();
            let offset = (self.place * BYTES) as u64;
            self.file.write_all_at(&[2; BYTES], offset)?;
            self.file.sync_data()?;
            took.push(started.elapsed().as_secs_f64() * 1e3);
        }
        took.sort_by(f64::total_cmp);
        self.middles_ms.extend(took.get(took.len() / 2));
        Ok(())
    }

    /// The median of the rounds.
    pub fn middle_ms(&self) -> Option<f64> {
        let mut middles = self.middles_ms.clone();
        middles.sort_by(f64::total_cmp);
        middles.get(middles.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_takes_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = Disk::of(folder.path()).unwrap();
        assert_eq!(disk.middle_ms(), None);
        disk.measure(50).unwrap();
        disk.measure(50).unwrap();
        assert_eq!(disk.middles_ms.len(), 2);
        assert!(disk.middle_ms().unwrap() > 0.0);
    }
}
