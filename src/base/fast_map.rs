//! Hash maps with a fast hash function, for lookups in every request.
//!
//! Only for keys that the gateway makes: the hash does not resist clients that choose colliding keys.

use std::collections::{HashMap, HashSet};

pub(crate) use foldhash::fast::RandomState;

pub(crate) type FastMap<K, V> = HashMap<K, V, RandomState>;
pub(crate) type FastSet<K> = HashSet<K, RandomState>;
