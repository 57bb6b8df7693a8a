//! Maps that are looked into for every request. Their keys are ours: no client can choose many that collide.

use std::collections::{HashMap, HashSet};

pub use foldhash::fast::RandomState;

pub type FastMap<K, V> = HashMap<K, V, RandomState>;
pub type FastSet<K> = HashSet<K, RandomState>;
