//! Work on many files or blocks by several threads.

use std::thread;

use parking_lot::Mutex;

/// Divides items into one consecutive share for each processor, and processes the shares in
/// parallel. Fewer items than `min` are processed by the calling thread alone, as one share.
/// Returns the results of the shares in the order of the items.
pub(crate) fn in_shares<T: Send, R: Send>(
    items: &mut [T],
    min: usize,
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    let is_shared = items.len() >= min;
    let threads =
        if is_shared { thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    in_shares_of(threads, items, work)
}

/// Like [`in_shares`], with one share for each of this many threads.
pub(crate) fn in_shares_of<T: Send, R: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    let length = items.len().div_ceil(threads).max(1);
    let threads = items.len().div_ceil(length);
    let queue = Mutex::new(items.chunks_mut(length).enumerate());
    let results = Mutex::new(Vec::new());
    let work_on = || {
        loop {
            let Some((number, share)) = queue.lock().next() else { return };
            let result = work(share);
            results.lock().push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            let builder = thread::Builder::new().name("fslab-archive".to_owned());
            // Without another thread, this one processes all shares.
            if builder.spawn_scoped(scope, work_on).is_err() {
                break;
            }
        }
        work_on();
    });
    let mut results = results.into_inner();
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 63, 64, 1000, 1001] {
            let mut items: Vec<usize> = (0..count).collect();
            let shares = in_shares(&mut items, 64, |share| {
                share.iter_mut().for_each(|item| *item += 1);
                share.to_vec()
            });
            let found: Vec<usize> = shares.into_iter().flatten().collect();
            assert_eq!(found, (1..=count).collect::<Vec<_>>());
            assert_eq!(items, found);
        }
    }
}
