//! The assignment of blocks to shares.

use fslab_report::Share;

/// Returns whether a share contains a block. `block` is the block's number in the order of rounds;
/// `workloads` is the number of workloads in a round.
///
/// Blocks are dealt to the shares in turn. If the numbers of shares and workloads have a common
/// divisor, a share would always get the same workloads. So the deal skips one share whenever the
/// pattern would repeat. The sizes of shares differ by at most one block.
pub(crate) fn holds(share: Share, block: usize, workloads: usize) -> bool {
    let shares = share.of as usize;
    let period = workloads / greatest_common_divisor(workloads, shares) * shares;
    (block + block / period) % shares == share.number as usize - 1
}

/// Returns the greatest common divisor of two numbers above 0.
fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_disjoint_and_mix_workloads() {
        for workloads in 1..7 {
            for of in 1..9 {
                let rounds = 2 * of as usize * workloads;
                let blocks = rounds * workloads;
                let mut owners = vec![0; blocks];
                for number in 1..=of {
                    let share = Share { number, of };
                    let own: Vec<_> = (0..blocks).filter(|b| holds(share, *b, workloads)).collect();
                    own.iter().for_each(|block| owners[*block] += 1);
                    let even = blocks / of as usize;
                    assert!((even..=even + 1).contains(&own.len()), "{workloads}, {of}: {own:?}");
                    for workload in 0..workloads {
                        let count = own.iter().filter(|b| *b % workloads == workload).count();
                        let fair = own.len() / workloads;
                        assert!(count.abs_diff(fair) <= workloads, "{workloads}, {of}: {own:?}");
                    }
                }
                assert!(owners.iter().all(|count| *count == 1), "{workloads}, {of}");
            }
        }
    }
}
