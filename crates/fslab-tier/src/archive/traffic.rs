//! Requests and bytes of archives. They are counted, because stores charge for them, and planned,
//! before a command causes them.
//!
//! Each kind of archive counts at one place: where it makes a request. Wrappers do not count; they
//! return the [`Meter`] of the archive below them. Meters are shared by all openings of an archive
//! in this process, so they also count the requests of opening it.

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The kinds of requests for which stores have different prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Writes a container or a part of one. S3: PUT and POST.
    Put,
    /// Reads a container or a part of one. S3: GET.
    Get,
    /// Lists containers. S3: the lists of objects and of uploads.
    List,
    /// Deletes a container or an unfinished upload.
    Delete,
}

/// Numbers of requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Requests of the kind [`RequestKind::Put`].
    pub put_requests: u64,
    /// Requests of the kind [`RequestKind::Get`].
    pub get_requests: u64,
    /// Requests of the kind [`RequestKind::List`].
    pub list_requests: u64,
    /// Requests of the kind [`RequestKind::Delete`].
    pub delete_requests: u64,
    /// Bytes sent to the archive.
    pub sent_bytes: u64,
    /// Bytes received from the archive.
    pub received_bytes: u64,
}

impl Traffic {
    /// Returns the traffic of one request.
    #[must_use]
    pub fn of(kind: RequestKind) -> Self {
        let mut traffic = Self::default();
        *match kind {
            RequestKind::Put => &mut traffic.put_requests,
            RequestKind::Get => &mut traffic.get_requests,
            RequestKind::List => &mut traffic.list_requests,
            RequestKind::Delete => &mut traffic.delete_requests,
        } = 1;
        traffic
    }

    /// Returns the traffic of a request that sends this many bytes.
    #[must_use]
    pub fn put(bytes: u64) -> Self {
        Self { sent_bytes: bytes, ..Self::of(RequestKind::Put) }
    }

    /// Returns the traffic of a request that returns this many bytes.
    #[must_use]
    pub fn get(bytes: u64) -> Self {
        Self { received_bytes: bytes, ..Self::of(RequestKind::Get) }
    }

    /// Returns the number of requests of all kinds.
    #[must_use]
    pub fn requests(&self) -> u64 {
        [self.put_requests, self.get_requests, self.list_requests, self.delete_requests]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            put_requests: self.put_requests.saturating_add(other.put_requests),
            get_requests: self.get_requests.saturating_add(other.get_requests),
            list_requests: self.list_requests.saturating_add(other.list_requests),
            delete_requests: self.delete_requests.saturating_add(other.delete_requests),
            sent_bytes: self.sent_bytes.saturating_add(other.sent_bytes),
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Number of counters in a [`Usage`].
const COUNTERS: usize = 9;

/// The traffic that an archive has caused, with its duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The requests and bytes. Repeated requests are counted each time.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Number of these requests that repeated a failed one.
    pub retries: u64,
    /// Time in which containers were sent. Time with several transfers is counted once.
    pub sending_ns: u64,
    /// Time in which containers were received. Time with several transfers is counted once.
    pub receiving_ns: u64,
}

impl Usage {
    /// Returns the counters as numbers, in a fixed order.
    pub(crate) fn to_numbers(self) -> [u64; COUNTERS] {
        let Traffic { put_requests, get_requests, list_requests, delete_requests, .. } =
            self.traffic;
        let Traffic { sent_bytes, received_bytes, .. } = self.traffic;
        let Self { retries, sending_ns, receiving_ns, .. } = self;
        [
            put_requests,
            get_requests,
            list_requests,
            delete_requests,
            sent_bytes,
            received_bytes,
            retries,
            sending_ns,
            receiving_ns,
        ]
    }

    /// Returns the counters with these numbers.
    pub(crate) fn from_numbers(numbers: [u64; COUNTERS]) -> Self {
        let [put_requests, get_requests, list_requests, delete_requests, rest @ ..] = numbers;
        let [sent_bytes, received_bytes, retries, sending_ns, receiving_ns] = rest;
        let traffic = Traffic {
            put_requests,
            get_requests,
            list_requests,
            delete_requests,
            sent_bytes,
            received_bytes,
        };
        Self { traffic, retries, sending_ns, receiving_ns }
    }

    /// Returns the sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn without(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    fn with(self, other: Self, of_both: impl Fn(u64, u64) -> u64) -> Self {
        let (own, other) = (self.to_numbers(), other.to_numbers());
        Self::from_numbers(std::array::from_fn(|counter| of_both(own[counter], other[counter])))
    }

    /// Estimates the seconds that planned traffic takes, from the measured rates. Returns `None` if
    /// a needed rate was never measured.
    pub(crate) fn seconds_of(&self, planned: &Traffic) -> Option<f64> {
        let seconds = |planned: u64, bytes: u64, ns: u64| match (planned, bytes) {
            (0, _) => Some(0.0),
            (_, 0) => None,
            _ if ns == 0 => None,
            _ => Some(planned as f64 / bytes as f64 * (ns as f64 / 1e9)),
        };
        let sending = seconds(planned.sent_bytes, self.traffic.sent_bytes, self.sending_ns)?;
        let receiving =
            seconds(planned.received_bytes, self.traffic.received_bytes, self.receiving_ns)?;
        Some(sending + receiving)
    }
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sending,
    Receiving,
}

/// Counts the traffic of an archive in this process.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    usage: Usage,
    /// The part of `usage` that the catalogue has recorded.
    recorded: Usage,
    /// For each direction, the number of transfers in progress, and the time when the first of them
    /// began.
    transfers: [(u64, u64); 2],
}

static METERS: LazyLock<Mutex<BTreeMap<String, Arc<Meter>>>> = LazyLock::new(Mutex::default);

impl Meter {
    /// Returns the meter of the archive at a place. All callers with the same place get the same
    /// meter. The kind of the archive chooses the text.
    #[must_use]
    pub fn of(place: &str) -> Arc<Self> {
        Arc::clone(METERS.lock().entry(place.to_owned()).or_default())
    }

    /// Counts requests and bytes.
    pub fn count(&self, traffic: Traffic) {
        self.0.lock().usage.traffic += traffic;
    }

    /// Counts bytes that were sent to the archive.
    pub fn sent(&self, bytes: u64) {
        self.count(Traffic { sent_bytes: bytes, ..Traffic::default() });
    }

    /// Counts bytes that were received from the archive.
    pub fn received(&self, bytes: u64) {
        self.count(Traffic { received_bytes: bytes, ..Traffic::default() });
    }

    /// Counts a repetition of a failed request. The caller also counts the request itself.
    pub fn retried(&self) {
        self.0.lock().usage.retries += 1;
    }

    /// Returns the traffic of this process so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.0.lock().usage
    }

    /// Returns the traffic that is not recorded yet.
    pub(crate) fn unrecorded(&self) -> Usage {
        let counted = self.0.lock();
        counted.usage.without(counted.recorded)
    }

    /// Returns the traffic that is not recorded yet, and marks it as recorded. If the caller can't
    /// record it, the caller gives it back with [`Self::give_back`].
    pub(crate) fn take_unrecorded(&self) -> Usage {
        let mut counted = self.0.lock();
        let taken = counted.usage.without(counted.recorded);
        counted.recorded = counted.usage;
        taken
    }

    /// Marks traffic as not recorded.
    pub(crate) fn give_back(&self, taken: Usage) {
        let mut counted = self.0.lock();
        counted.recorded = counted.recorded.without(taken);
    }

    /// Notes the beginning of a transfer.
    pub(crate) fn begin(&self, direction: Direction, now_ns: u64) {
        let (under_way, since_ns) = &mut self.0.lock().transfers[direction as usize];
        if *under_way == 0 {
            *since_ns = now_ns;
        }
        *under_way += 1;
    }

    /// Notes the end of a transfer.
    pub(crate) fn end(&self, direction: Direction, now_ns: u64) {
        let mut counted = self.0.lock();
        let (under_way, since_ns) = &mut counted.transfers[direction as usize];
        *under_way = under_way.saturating_sub(1);
        if *under_way > 0 {
            return;
        }
        let took_ns = now_ns.saturating_sub(*since_ns);
        match direction {
            Direction::Sending => counted.usage.sending_ns += took_ns,
            Direction::Receiving => counted.usage.receiving_ns += took_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_transfers_are_timed_once() {
        let meter = Meter::default();
        meter.begin(Direction::Sending, 10);
        meter.begin(Direction::Sending, 15);
        meter.begin(Direction::Receiving, 16);
        meter.end(Direction::Sending, 20);
        meter.end(Direction::Sending, 30);
        meter.begin(Direction::Sending, 100);
        meter.end(Direction::Sending, 101);
        meter.end(Direction::Receiving, 116);
        assert_eq!((meter.usage().sending_ns, meter.usage().receiving_ns), (21, 100));
    }

    #[test]
    fn traffic_is_recorded_once() {
        let meter = Meter::default();
        meter.count(Traffic::put(7));
        let first = meter.take_unrecorded();
        meter.count(Traffic::get(5));
        assert_eq!(first.traffic, Traffic::put(7));
        assert_eq!(meter.unrecorded().traffic, Traffic::get(5));
        meter.give_back(first);
        let both = Traffic::put(7) + Traffic::get(5);
        assert_eq!(meter.take_unrecorded().traffic, both);
        assert_eq!(meter.take_unrecorded(), Usage::default());
        assert_eq!(meter.usage().traffic, both);
    }

    #[test]
    fn time_is_estimated_only_from_measured_rates() {
        let traffic = Traffic { sent_bytes: 1000, ..Traffic::default() };
        let usage = Usage { traffic, sending_ns: 2_000_000_000, ..Usage::default() };
        assert_eq!(usage.seconds_of(&Traffic::put(500)), Some(1.0));
        assert_eq!(usage.seconds_of(&Traffic::get(1)), None, "no read was measured");
        assert_eq!(usage.seconds_of(&Traffic::get(0)), Some(0.0));
    }

    #[test]
    fn usage_survives_the_conversion_to_numbers() {
        let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(Usage::from_numbers(numbers).to_numbers(), numbers);
    }
}
