//! The load of the machine during a phase, and whether it was large enough to distort the time.
//!
//! The thresholds are chosen by judgement: smaller disturbances disappear in the normal variation
//! of measurements. The processor time of other programs is called foreign. The time of a kernel
//! thread is not treated as foreign, because it is unknown whether the thread works for the target
//! or for other programs.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use fslab_sys::block_counters::{BlockCounters, DeviceNumber};

use crate::error::{Error, Result};
use fslab_report::sample::{Device, Sample};

/// A sample is marked if foreign processor time exceeds both this share of the elapsed time and
/// [`PROCESSOR_LEAST`]. The same limits apply to time stolen by the hypervisor.
const PROCESSOR_SHARE: f64 = 0.05;

/// Two ticks of /proc/stat, whose resolution is 10 ms.
const PROCESSOR_LEAST: Duration = Duration::from_millis(20);

/// A sample is marked if the disk that contains the image transfers more foreign bytes per second
/// than this. The file system that contains the image also writes to this disk. Therefore only
/// bytes beyond twice the target's own are treated as foreign.
const DISK_BYTES_PER_SECOND: f64 = 4e6;

/// A sample is not marked for fewer foreign bytes than this.
const DISK_BYTES_LEAST: f64 = 2e6;

/// A sample is marked if there are more bytes of dirty pages than this when its phase begins,
/// because their writeback competes with the phase.
const DIRTY_BYTES: u64 = 64 << 20;

/// Values read before and after a phase. Reading them is not timed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Surroundings {
    backing: Option<BlockCounters>,
    dirty_bytes: u64,
    page_cache_bytes: u64,
    throttled: Option<u64>,
}

impl Surroundings {
    /// Reads the values. `backing` is the disk that contains the images, if there is one.
    pub fn look(backing: Option<DeviceNumber>) -> Result<Self> {
        let read = |device: DeviceNumber| {
            BlockCounters::read(device).map_err(Error::file(&device.sysfs("stat")))
        };
        let path = Path::new("/proc/meminfo");
        let memory = fs::read_to_string(path).map_err(Error::file(path))?;
        let bytes = |key: &str| {
            memory_field(&memory, key).ok_or_else(|| {
                Error::file(path)(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{key} is missing"),
                ))
            })
        };
        Ok(Self {
            backing: backing.map(read).transpose()?,
            dirty_bytes: bytes("Dirty:")? + bytes("Writeback:")?,
            page_cache_bytes: bytes("Cached:")? + bytes("Buffers:")?,
            throttled: throttled(),
        })
    }

    /// Records the changes since `before` in the sample.
    pub fn record_since(&self, before: &Self, sample: &mut Sample) {
        let machine = &mut sample.machine;
        machine.dirty_bytes_before = before.dirty_bytes;
        machine.page_cache_bytes =
            self.page_cache_bytes.cast_signed() - before.page_cache_bytes.cast_signed();
        machine.throttled =
            self.throttled.zip(before.throttled).map(|(after, before)| after - before);
        sample.backing =
            self.backing.zip(before.backing).map(|(after, before)| device_counters(after - before));
    }
}

/// Returns a field of /proc/meminfo in bytes.
pub(super) fn memory_field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns how often the processors were throttled because of heat; `None` if the machine does not
/// count it.
fn throttled() -> Option<u64> {
    let processors = fs::read_dir("/sys/devices/system/cpu").ok()?;
    let counts = processors.filter_map(|entry| {
        let path = entry.ok()?.path().join("thermal_throttle/core_throttle_count");
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    counts.reduce(|a, b| a + b)
}

/// Describes the disturbances of a sample, joined by semicolons; `None` if there were none. If
/// several workloads run concurrently (`is_part`), processor time of other programs is ignored,
/// because it can't be distinguished from that of the other workloads.
pub(super) fn contamination(sample: &Sample, is_part: bool) -> Option<String> {
    let load = if is_part { None } else { load(sample) };
    let found: Vec<String> = [steal(sample), load, heat(sample), disk(sample), dirty(sample)]
        .into_iter()
        .flatten()
        .collect();
    (!found.is_empty()).then(|| found.join("; "))
}

fn steal(sample: &Sample) -> Option<String> {
    let stolen = sample.machine.steal_ns;
    (stolen > processor_limit(sample)).then(|| {
        format!(
            "the hypervisor withheld {:.0} % of a processor (steal time)",
            percent(stolen, sample)
        )
    })
}

fn load(sample: &Sample) -> Option<String> {
    let own = sample.user_ns + sample.daemon_cpu_ns.unwrap_or(0);
    let foreign = sample.machine.user_ns.saturating_sub(own);
    (foreign > processor_limit(sample))
        .then(|| format!("other programs used {:.0} % of a processor", percent(foreign, sample)))
}

fn heat(sample: &Sample) -> Option<String> {
    let times = sample.machine.throttled.filter(|times| *times > 0)?;
    Some(format!("processors were throttled {times} times because of heat"))
}

fn disk(sample: &Sample) -> Option<String> {
    let all = bytes(sample.backing?);
    let others = all - 2.0 * sample.device.map_or(0.0, bytes);
    let limit = (DISK_BYTES_PER_SECOND * sample.seconds()).max(DISK_BYTES_LEAST);
    (others > limit).then(|| {
        format!(
            "other processes read or wrote {:.0} MB on the underlying disk",
            others.max(1e6) / 1e6
        )
    })
}

fn dirty(sample: &Sample) -> Option<String> {
    let before = sample.machine.dirty_bytes_before;
    let on_disk = sample.device.is_some() || sample.backing.is_some();
    (on_disk && before > DIRTY_BYTES).then(|| {
        format!("{} MiB of dirty pages waited for writeback when the phase began", before >> 20)
    })
}

fn bytes(device: Device) -> f64 {
    (device.sectors_read + device.sectors_written) as f64 * 512.0
}

fn processor_limit(sample: &Sample) -> u64 {
    let share = (sample.elapsed_ns as f64 * PROCESSOR_SHARE) as u64;
    share.max(PROCESSOR_LEAST.as_nanos() as u64)
}

fn percent(part: u64, sample: &Sample) -> f64 {
    part as f64 * 100.0 / sample.elapsed_ns.max(1) as f64
}

/// Converts the counters of a device to the type that samples contain.
pub(super) fn device_counters(counters: BlockCounters) -> Device {
    Device {
        reads: counters.reads,
        reads_merged: counters.reads_merged,
        sectors_read: counters.sectors_read,
        writes: counters.writes,
        writes_merged: counters.writes_merged,
        sectors_written: counters.sectors_written,
        read_ms: counters.read_ms,
        write_ms: counters.write_ms,
        busy_ms: counters.busy_ms,
        discards: counters.discards,
        flushes: counters.flushes,
    }
}

#[cfg(test)]
mod tests {
    use super::{Surroundings, contamination, memory_field};
    use fslab_report::sample::{Device, Machine, Sample};

    fn sample(elapsed_ms: u64, foreign_ms: u64, steal_ms: u64) -> Sample {
        let machine = Machine {
            user_ns: foreign_ms * 1_000_000,
            steal_ns: steal_ms * 1_000_000,
            ..Machine::default()
        };
        Sample { elapsed_ns: elapsed_ms * 1_000_000, machine, ..Sample::default() }
    }

    #[track_caller]
    fn check(sample: &Sample, expected: Option<&str>) {
        let found = contamination(sample, false);
        match expected {
            None => assert_eq!(found, None),
            Some(part) => assert!(found.as_ref().is_some_and(|f| f.contains(part)), "{found:?}"),
        }
    }

    #[test]
    fn foreign_load_or_stolen_time_above_the_limit_marks_a_sample() {
        check(&sample(1000, 40, 40), None);
        check(&sample(10, 20, 0), None);
        check(&sample(1000, 60, 0), Some("programs"));
        check(&sample(1000, 0, 60), Some("hypervisor"));
        check(&sample(1000, 60, 60), Some("; "));
        assert_eq!(contamination(&sample(1000, 60, 0), true), None);
    }

    #[test]
    fn daemon_time_is_not_foreign_load() {
        check(&Sample { daemon_cpu_ns: Some(500_000_000), ..sample(1000, 500, 0) }, None);
    }

    fn on_disk(own_mb: u64, all_mb: u64) -> Sample {
        let device =
            |mb: u64| Some(Device { sectors_written: mb * 1_000_000 / 512, ..Device::default() });
        Sample { device: device(own_mb), backing: device(all_mb), ..sample(1000, 0, 0) }
    }

    /// The disk transfers the target's own bytes and those that the lower file system adds.
    #[test]
    fn only_foreign_disk_traffic_marks_a_sample() {
        check(&on_disk(100, 0), None);
        check(&on_disk(100, 190), None);
        check(&on_disk(1, 5), None);
        check(&on_disk(1, 30), Some("other processes read or wrote 28 MB"));
        check(&Sample { device: None, ..on_disk(0, 30) }, Some("other processes read or wrote"));
    }

    #[test]
    fn throttling_and_dirty_pages_mark_a_sample() {
        let mut hot = sample(1000, 0, 0);
        hot.machine.throttled = Some(0);
        check(&hot, None);
        hot.machine.throttled = Some(3);
        check(&hot, Some("throttled 3 times because of heat"));
        let mut dirty = on_disk(1, 1);
        dirty.machine.dirty_bytes_before = 100 << 20;
        check(&dirty, Some("100 MiB"));
        // Dirty pages do not compete with a target that is not on a disk.
        check(&Sample { device: None, backing: None, ..dirty }, None);
    }

    #[test]
    fn surroundings_are_read_from_the_machine() {
        assert_eq!(memory_field("A: 1 kB\nDirty:   12 kB\n", "Dirty:"), Some(12 * 1024));
        let before = Surroundings::look(None).unwrap();
        assert!(before.page_cache_bytes > 0);
        let mut sample = Sample::default();
        Surroundings::look(None).unwrap().record_since(&before, &mut sample);
        assert_eq!(sample.machine.dirty_bytes_before, before.dirty_bytes);
        assert_eq!(sample.backing, None);
    }
}
