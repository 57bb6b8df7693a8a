//! The file format of the weights. A file is checked before it is used.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::{
    HEADS,
    grams::BUCKETS,
    hand::HAND,
    pieces::{DIM, Vocabulary},
};

const MAGIC: &[u8; 8] = b"TGROUTER";
/// Format number; increased whenever the file format or the computation of the features changes.
const FORMAT: u32 = 2;
/// The largest accepted vocabulary: four times the built-in one.
const MAX_PIECES: usize = 1 << 17;
const DIGEST_LEN: usize = 32;
const HEADER_LEN: usize = MAGIC.len() + 4 + DIGEST_LEN;

/// The learned weights. Heads are the quality tiers, then the domains; in tables with a number per head, the head is
/// the fastest-varying index.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Weights {
    /// Weight per bucket and head, in units of the head's `gram_units`.
    pub grams: Vec<i8>,
    pub gram_units: Vec<f32>,
    /// Hand-crafted features are normalised: less `hand_middle`, times `hand_scale`.
    pub hand_middle: Vec<f32>,
    pub hand_scale: Vec<f32>,
    pub hand: Vec<f32>,
    pub embedding: Vec<f32>,
    /// Inverse temperature of the softmax over the domains.
    pub sharpness: f32,
    /// The vocabulary, and in `rows` 64 signed bytes per piece. The rows are most of the file; the built-in ones are
    /// borrowed and not copied.
    pub fingerprints: Vec<u32>,
    pub rows: Cow<'static, [u8]>,
}

impl Weights {
    pub(crate) fn vocabulary(&self) -> Vocabulary {
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
            &self.embedding,
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

    /// Reads and checks a file. Returns the weights and their version.
    pub(crate) fn decode(file: &[u8]) -> Result<(Self, String), String> {
        let (version, body) = split_header(file)?;
        let digest = &file[HEADER_LEN - DIGEST_LEN..HEADER_LEN];
        if Sha256::digest(body).as_slice() != digest {
            return Err("the router weights are damaged: their checksum does not match".into());
        }
        let copied = |rows: &[u8]| Cow::Owned(rows.to_vec());
        Ok((Reader(body).weights(copied)?, version))
    }

    /// Reads the built-in file without verifying its checksum and without copying the rows.
    pub(crate) fn built_in(file: &'static [u8]) -> Result<(Self, String), String> {
        let (version, body) = split_header(file)?;
        Ok((Reader(body).weights(Cow::Borrowed)?, version))
    }
}

/// Checks the header of a file. Returns the version and the body.
fn split_header(file: &[u8]) -> Result<(String, &[u8]), String> {
    let magic = file.get(..MAGIC.len());
    if magic != Some(MAGIC) {
        return Err("this is not a file of router weights".into());
    }
    let Some((header, body)) = file.split_at_checked(HEADER_LEN) else {
        return Err("the router weights are cut short".into());
    };
    let (format, digest) = header[MAGIC.len()..].split_at(4);
    if format != FORMAT.to_le_bytes() {
        return Err(format!(
            "the router weights are of another format than {FORMAT}, the one this program reads"
        ));
    }
    let version = digest[..6].iter().map(|byte| format!("{byte:02x}"));
    Ok((format!("{FORMAT}-{}", version.collect::<String>()), body))
}

/// Reads the body; holds the bytes not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn weights(
        mut self,
        keep: impl FnOnce(&'a [u8]) -> Cow<'static, [u8]>,
    ) -> Result<Weights, String> {
        for size in [HEADS, BUCKETS, HAND, DIM] {
            if self.u32()? as usize != size {
                return Err("the router weights are for other features".into());
            }
        }
        let pieces = self.u32()? as usize;
        if pieces == 0 {
            return Err("the router weights have no vocabulary".into());
        }
        if pieces > MAX_PIECES {
            return Err("the vocabulary of the router weights is too large".into());
        }
        let weights = Weights {
            gram_units: self.f32s(HEADS)?,
            hand_middle: self.f32s(HAND)?,
            hand_scale: self.f32s(HAND)?,
            hand: self.f32s(HAND * HEADS)?,
            embedding: self.f32s(DIM * HEADS)?,
            sharpness: self.f32s(1)?[0],
            fingerprints: self.u32s(pieces)?,
            grams: self.i8s(BUCKETS * HEADS)?,
            rows: keep(self.take(pieces.saturating_mul(DIM))?),
        };
        if !self.0.is_empty() {
            return Err("the router weights have extra bytes at the end".into());
        }
        Ok(weights)
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let cut = self.0.split_at_checked(bytes);
        let (taken, rest) = cut.ok_or("the router weights are cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32s(&mut self, count: usize) -> Result<Vec<u32>, String> {
        let (words, _) = self.take(count.saturating_mul(4))?.as_chunks();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self.u32s(1)?[0])
    }

    fn f32s(&mut self, count: usize) -> Result<Vec<f32>, String> {
        let floats: Vec<f32> = self.u32s(count)?.into_iter().map(f32::from_bits).collect();
        if floats.iter().all(|float| float.is_finite()) {
            Ok(floats)
        } else {
            Err("the router weights contain a number that is not finite".into())
        }
    }

    fn i8s(&mut self, count: usize) -> Result<Vec<i8>, String> {
        Ok(self
            .take(count)?
            .iter()
            .map(|byte| byte.cast_signed())
            .collect())
    }
}
