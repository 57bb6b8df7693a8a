//! The file of weights: what was learned, checked before it is used.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::{
    HEADS,
    grams::BUCKETS,
    hand::HAND,
    pieces::{DIM, Vocabulary},
};

const MAGIC: &[u8; 8] = b"TGROUTER";
/// Counts up whenever the file or anything the features are computed from changes.
const FORMAT: u32 = 2;
/// Four times what there are.
const MOST_PIECES: usize = 1 << 17;
const DIGEST: usize = 32;
const HEAD: usize = MAGIC.len() + 4 + DIGEST;

/// What was learned. Heads are the quality tiers and then the domains; where there is a number
/// for each head, heads vary fastest.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Weights {
    /// Per bucket and head, in units of the head's `gram_units`.
    pub grams: Vec<i8>,
    pub gram_units: Vec<f32>,
    /// Each feature is brought to a common scale: less its middle, times its scale.
    pub hand_middle: Vec<f32>,
    pub hand_scale: Vec<f32>,
    pub hand: Vec<f32>,
    pub meaning: Vec<f32>,
    /// How sharply the domains' scores are told apart.
    pub sharpness: f32,
    /// The vocabulary, and 64 numbers per piece, a signed byte each. They are most of the file: those that come
    /// with the program stay where they are.
    pub fingerprints: Vec<u32>,
    pub rows: Cow<'static, [u8]>,
}

impl Weights {
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::new(&self.fingerprints)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let pieces = u32::try_from(self.fingerprints.len()).expect("a vocabulary is small");
        for size in [HEADS, BUCKETS, HAND, DIM] {
            let size = u32::try_from(size).expect("the sizes are small");
            body.extend(size.to_le_bytes());
        }
        body.extend(pieces.to_le_bytes());
        for floats in [
            &self.gram_units,
            &self.hand_middle,
            &self.hand_scale,
            &self.hand,
            &self.meaning,
            &vec![self.sharpness],
        ] {
            body.extend(floats.iter().flat_map(|float| float.to_le_bytes()));
        }
        body.extend(
            self.fingerprints
                .iter()
                .flat_map(|print| print.to_le_bytes()),
        );
        body.extend(self.grams.iter().map(|n| n.cast_unsigned()));
        body.extend(&*self.rows);
        let mut file = MAGIC.to_vec();
        file.extend(FORMAT.to_le_bytes());
        file.extend(Sha256::digest(&body));
        file.extend(body);
        file
    }

    /// The weights, and the version they are known by.
    pub fn decode(file: &[u8]) -> Result<(Self, String), String> {
        let (version, body) = opened(file)?;
        let digest = &file[HEAD - DIGEST..HEAD];
        if Sha256::digest(body).as_slice() != digest {
            return Err("the router weights are damaged: their checksum does not match".into());
        }
        let copied = |rows: &[u8]| Cow::Owned(rows.to_vec());
        Ok((Rest(body).weights(copied)?, version))
    }

    /// The same for those that come with the program: they are not gone through, and not copied.
    pub fn built_in(file: &'static [u8]) -> Result<(Self, String), String> {
        let (version, body) = opened(file)?;
        Ok((Rest(body).weights(Cow::Borrowed)?, version))
    }
}

/// The version of a file, and what comes after its head.
fn opened(file: &[u8]) -> Result<(String, &[u8]), String> {
    let magic = file.get(..MAGIC.len());
    if magic != Some(MAGIC) {
        return Err("this is not a file of router weights".into());
    }
    let Some((head, body)) = file.split_at_checked(HEAD) else {
        return Err("the router weights are cut short".into());
    };
    let (format, digest) = head[MAGIC.len()..].split_at(4);
    if format != FORMAT.to_le_bytes() {
        return Err(format!(
            "the router weights are of another format than {FORMAT}, the one this program reads"
        ));
    }
    let version = digest[..6].iter().map(|byte| format!("{byte:02x}"));
    Ok((format!("{FORMAT}-{}", version.collect::<String>()), body))
}

/// What has not been read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn weights(
        mut self,
        keep: impl FnOnce(&'a [u8]) -> Cow<'static, [u8]>,
    ) -> Result<Weights, String> {
        for size in [HEADS, BUCKETS, HAND, DIM] {
            if self.word()? as usize != size {
                return Err("the router weights are for other features".into());
            }
        }
        let pieces = self.word()? as usize;
        if pieces == 0 {
            return Err("the router weights have no vocabulary".into());
        }
        if pieces > MOST_PIECES {
            return Err("the vocabulary of the router weights is too large".into());
        }
        let weights = Weights {
            gram_units: self.floats(HEADS)?,
            hand_middle: self.floats(HAND)?,
            hand_scale: self.floats(HAND)?,
            hand: self.floats(HAND * HEADS)?,
            meaning: self.floats(DIM * HEADS)?,
            sharpness: self.floats(1)?[0],
            fingerprints: self.words(pieces)?,
            grams: self.small(BUCKETS * HEADS)?,
            rows: keep(self.take(pieces.saturating_mul(DIM))?),
        };
        if !self.0.is_empty() {
            return Err("the router weights go on after their end".into());
        }
        Ok(weights)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let cut = self.0.split_at_checked(bytes);
        let (taken, rest) = cut.ok_or("the router weights are cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn words(&mut self, count: usize) -> Result<Vec<u32>, String> {
        let (words, _) = self.take(count.saturating_mul(4))?.as_chunks();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn word(&mut self) -> Result<u32, String> {
        Ok(self.words(1)?[0])
    }

    fn floats(&mut self, count: usize) -> Result<Vec<f32>, String> {
        let floats: Vec<f32> = self.words(count)?.into_iter().map(f32::from_bits).collect();
        if floats.iter().all(|float| float.is_finite()) {
            Ok(floats)
        } else {
            Err("the router weights hold a number that is none".into())
        }
    }

    fn small(&mut self, count: usize) -> Result<Vec<i8>, String> {
        Ok(self
            .take(count)?
            .iter()
            .map(|byte| byte.cast_signed())
            .collect())
    }
}
