//! The gateways and proxies that are measured.

mod direct;
mod litellm;
mod nginx;
mod portkey;
mod stores;
mod tollgate;

use std::{fs, path::Path, time::Duration};

use crate::{Done, Options, load::Target, upstream::Upstream};

pub use direct::Direct;
pub use nginx::Nginx;
pub use tollgate::{Durability, Tollgate};

/// A server in front of the upstream.
pub trait Contestant {
    fn name(&self) -> &'static str;

    fn target(&self) -> &Target;

    /// Where it serves Anthropic's Messages API, if it does.
    fn messages(&self) -> Option<Target> {
        None
    }

    /// The process that is measured, together with its descendants; `None` for the upstream alone.
    fn pid(&self) -> Option<u32>;

    /// Its database servers, which are measured separately.
    fn stores(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Stops it, starts it on its stored data, and returns how long it took to be ready.
    fn restart(&mut self) -> Done<Duration>;

    /// Checks that it has charged exactly `answers` responses since its first start, and that its ledger adds up.
    fn check(&self, _answers: u64) -> Done {
        Ok(())
    }

    /// Bytes on disk: the program, or everything that was installed to run it.
    fn size(&self) -> u64;

    fn version(&self) -> String;

    /// Whether it is another gateway: it is given fewer streams to hold, and may fail at that.
    fn is_peer(&self) -> bool {
        false
    }
}

/// Starts all contestants.
pub fn start_all(
    options: &Options,
    upstream: &Upstream,
    folder: &Path,
) -> Done<Vec<Box<dyn Contestant>>> {
    let wanted = |name: &str| {
        let mut words = options.only.iter();
        options.only.is_empty() || words.any(|word| name.contains(word.as_str()))
    };
    // The others are compared with these two, so they always take part.
    let mut all: Vec<Box<dyn Contestant>> = vec![
        Box::new(Direct::new(upstream)),
        Box::new(Nginx::start(upstream, folder)?),
    ];
    for durability in [Durability::Power, Durability::Process] {
        if wanted(durability.name()) {
            let tollgate = Tollgate::on_files(&options.tollgate, upstream, folder, durability)?;
            all.push(Box::new(tollgate));
        }
    }
    if wanted(tollgate::SHARED) {
        let tollgate = Tollgate::on_servers(&options.tollgate, upstream, folder)?;
        all.push(Box::new(tollgate));
    }
    if let Some(peers) = &options.peers {
        if wanted(litellm::NAME) {
            all.push(Box::new(litellm::LiteLlm::start(peers, upstream, folder)?));
        }
        if wanted(portkey::NAME) {
            all.push(Box::new(portkey::Portkey::start(peers, upstream, folder)?));
        }
    }
    Ok(all)
}

/// Size of a file, or of everything in a folder without the targets of links.
fn size_on_disk(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(entry) if entry.is_dir() => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| size_on_disk(&entry.path())).sum()
        }
        Ok(entry) => entry.len(),
        Err(_) => 0,
    }
}
