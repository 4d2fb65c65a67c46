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
    by_threads(threads, items.len().div_ceil(threads), items, work)
}

/// Processes items with this many threads; each free thread takes the next item. Returns the
/// results in the order of the items.
pub(crate) fn each_by<T: Send, R: Send>(
    threads: usize,
    items: &mut [T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results = by_threads(threads, 1, items, |item| item.iter().map(&work).collect::<Vec<_>>());
    results.into_iter().flatten().collect()
}

/// Divides items into shares of this length, and processes them by at most this many threads.
fn by_threads<T: Send, R: Send>(
    threads: usize,
    length: usize,
    items: &mut [T],
    work: impl Fn(&mut [T]) -> R + Sync,
) -> Vec<R> {
    let length = length.max(1);
    let threads = threads.min(items.len().div_ceil(length));
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
            let builder = thread::Builder::new().name("fslab-tier".to_owned());
            // If no thread can be started, the threads that exist process all shares.
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
