//! Byte-pair merging: counts the tokens of one pre-token.

use super::table::Merges;

/// Longest pre-token that is merged, in bytes. Of a longer one the bytes are counted, which are never fewer than its
/// tokens.
///
/// No word is that long; the longest pre-tokens are sentences in scripts without spaces. The limit bounds the memory
/// and time that a hostile text can cost.
pub(crate) const LONGEST_MERGED: usize = 4096;
/// Longest pre-token that is merged on the stack.
const SHORT: usize = 64;
/// Pairs per group. The lowest rank of each group is stored, so that the lowest of all is found without scanning all
/// pairs.
const GROUP: usize = 16;
/// Higher than all ranks. Ranks are signed because processors compare signed numbers faster.
const NO_MERGE: i32 = i32::MAX;

/// A token in a linked list that gets shorter with each merge.
#[derive(Clone, Copy, Default)]
pub(crate) struct Node {
    pub token: u32,
    previous: u16,
    pub next: u16,
}

/// The exact number of tokens that a pre-token has in the vocabulary, or its number of bytes if it is longer than
/// [`LONGEST_MERGED`].
pub(crate) fn count(merges: Merges, piece: &[u8]) -> u64 {
    let tokens = match piece.len() {
        length @ 0..=1 => length,
        length @ 2..=SHORT => {
            let mut nodes = [Node::default(); SHORT];
            let (mut ranks, mut lowest) = ([[NO_MERGE; GROUP]; SHORT / GROUP], [0; SHORT / GROUP]);
            let groups = length.div_ceil(GROUP);
            let nodes = &mut nodes[..length];
            merge(
                merges,
                piece,
                nodes,
                &mut ranks[..groups],
                &mut lowest[..groups],
            )
        }
        ..=LONGEST_MERGED => merge_long(merges, piece).0,
        length => length,
    };
    tokens as u64
}

/// Merges a pre-token of up to [`LONGEST_MERGED`] bytes on the heap. Returns the number of tokens and their list.
pub(crate) fn merge_long(merges: Merges, piece: &[u8]) -> (usize, Vec<Node>) {
    let groups = piece.len().div_ceil(GROUP);
    let mut nodes = vec![Node::default(); piece.len()];
    let (mut ranks, mut lowest) = (vec![[NO_MERGE; GROUP]; groups], vec![0; groups]);
    let count = merge(merges, piece, &mut nodes, &mut ranks, &mut lowest);
    (count, nodes)
}

/// Merges until no merge is left and returns the number of tokens. Each time, the first pair of the lowest rank is
/// merged.
///
/// `ranks` has for each token the rank of its merge with the next one.
#[expect(
    clippy::cast_possible_truncation,
    reason = "positions are below LONGEST_MERGED"
)]
fn merge(
    merges: Merges,
    piece: &[u8],
    nodes: &mut [Node],
    ranks: &mut [[i32; GROUP]],
    lowest: &mut [i32],
) -> usize {
    for (at, (node, &byte)) in (0_u16..).zip(nodes.iter_mut().zip(piece)) {
        *node = Node {
            token: u32::from(byte),
            previous: at.wrapping_sub(1),
            next: at + 1,
        };
    }
    let rank = |left: Node, right: Node| {
        let token = merges.merged(left.token, right.token);
        token.map_or(NO_MERGE, u32::cast_signed)
    };
    for (rank_of, pair) in ranks.as_flattened_mut().iter_mut().zip(nodes.windows(2)) {
        *rank_of = rank(pair[0], pair[1]);
    }
    for (lowest, group) in lowest.iter_mut().zip(ranks.iter()) {
        *lowest = low(group);
    }
    let mut count = piece.len();
    loop {
        let token = low(lowest);
        let Some(group) = (token != NO_MERGE).then(|| first(lowest, token)) else {
            return count;
        };
        let left = group * GROUP + first(&ranks[group], token);
        let right = usize::from(nodes[left].next);
        let (previous, next) = (nodes[left].previous, nodes[right].next);
        nodes[left].token = token.cast_unsigned();
        nodes[left].next = next;
        count -= 1;
        let mut set = |at: usize, rank: i32| {
            ranks[at / GROUP][at % GROUP] = rank;
            lowest[at / GROUP] = low(&ranks[at / GROUP]);
        };
        set(right, NO_MERGE);
        match nodes.get_mut(usize::from(next)) {
            Some(node) => {
                node.previous = left as u16;
                let node = *node;
                set(left, rank(nodes[left], node));
            }
            None => set(left, NO_MERGE),
        }
        if let Some(&node) = nodes.get(usize::from(previous)) {
            set(usize::from(previous), rank(node, nodes[left]));
        }
    }
}

/// The lowest rank.
fn low(ranks: &[i32]) -> i32 {
    ranks.iter().copied().min().unwrap_or(NO_MERGE)
}

/// The index of the first occurrence of a rank.
fn first(ranks: &[i32], rank: i32) -> usize {
    ranks.iter().take_while(|other| **other != rank).count()
}
