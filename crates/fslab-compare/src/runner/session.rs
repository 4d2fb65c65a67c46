//! Measures the phases of one workload on one target.
//!
//! The clock is read directly before and directly after the work; counters are read outside of this
//! interval. A cold phase that reads files counts the cached pages of each file when it opens the
//! file, within the timed region. This costs one system call of less than a microsecond, the same
//! for every target. An earlier count would load the inodes, which must be cold.

use std::time::Duration;

use fslab_sys::block_counters::DeviceNumber;
use fslab_sys::signals::Interrupt;
use fslab_sys::usage::Instant;

use super::meeting::{Meeting, name_of_part};
use super::reading::Reading;
use super::recording::{Active, Recorder};
use super::surroundings::{Surroundings, contamination};
use crate::error::{Error, Result};
use crate::target::{Remounted, Target};
use crate::tree::slowed::{SlowedTree, slowed};
use crate::tree::{Access, Tree, TreeFile};
use fslab_report::sample::{Better, Cache, CacheState, OwnMetric, Sample, of_threads};
use fslab_stats::{Directions, Stopwatch, nanoseconds};

/// A phase to be measured.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Phase {
    name: &'static str,
    size: Option<u64>,
    threads: Option<u32>,
    cache: CacheState,
}

impl Phase {
    /// Makes a phase that does not depend on the state of the cache.
    pub fn new(name: &'static str) -> Self {
        Self { name, size: None, threads: None, cache: CacheState::NotAsked }
    }

    /// Makes the phase a point of a sweep over sizes in bytes.
    pub fn size(self, size: u64) -> Self {
        Self { size: Some(size), ..self }
    }

    /// Makes the phase a point of a sweep over threads; the name of the phase contains the number.
    pub fn threads(self, threads: u32) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Sets the requested state of the cache, cold or warm.
    pub fn cache(self, cache: CacheState) -> Self {
        Self { cache, ..self }
    }

    fn full_name(&self) -> String {
        let of = |threads| of_threads(self.name, threads);
        self.threads.map_or_else(|| self.name.to_owned(), of)
    }
}

/// One run of one workload on one target.
pub struct Session<'a> {
    pub(super) target: &'a mut dyn Target,
    /// The values that all samples have in common.
    pub(super) template: Sample,
    pub(super) interrupt: Interrupt,
    remounted: Option<Remounted>,
    pub(super) samples: Vec<Sample>,
    /// The disk that contains the images.
    pub(super) backing: Option<DeviceNumber>,
    /// The share by which operations are slowed in the timed parts, for a self-test.
    pub(super) slowed: Option<f64>,
    /// Records the phases on request.
    pub(super) recorder: Option<&'a Recorder>,
    /// The workload's label and the barrier, if several workloads run concurrently.
    pub(super) meeting: Option<(&'a str, &'a Meeting)>,
}

impl<'a> Session<'a> {
    pub(super) fn new(target: &'a mut dyn Target, template: Sample, interrupt: Interrupt) -> Self {
        Self {
            target,
            template,
            interrupt,
            remounted: None,
            samples: Vec::new(),
            backing: None,
            slowed: None,
            recorder: None,
            meeting: None,
        }
    }

    /// Returns the seed of this round and workload, the same for every target.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.template.seed
    }

    /// Describes the data of the following phases.
    pub fn describe_data(&mut self, data: String) {
        self.template.data = Some(data);
    }

    /// Returns the flag that interrupts the run.
    #[must_use]
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Records the space that the files of the last phase occupy, in bytes.
    pub fn record_stored(&mut self, bytes: u64) {
        if let Some(sample) = self.samples.last_mut() {
            sample.stored_bytes = Some(bytes);
        }
    }

    /// Returns the target's tree for untimed work.
    ///
    /// # Errors
    /// Fails if an earlier remount failed.
    pub fn tree(&self) -> Result<&dyn Tree> {
        self.target.tree()
    }

    /// Returns an error if the run was interrupted.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.interrupt.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Unmounts and mounts the target if possible. The next phase that requests a cold cache then
    /// starts with one. The sample records whether the cache was cold.
    ///
    /// # Errors
    /// Returns errors of unmounting and mounting.
    pub fn make_cold(&mut self) -> Result<()> {
        self.check()?;
        self.remounted = self.target.remount()?;
        Ok(())
    }

    /// Adds the samples of workloads that ran concurrently.
    pub(crate) fn add_samples(&mut self, samples: Vec<Sample>) {
        self.samples.extend(samples);
    }

    /// Measures a phase.
    ///
    /// # Errors
    /// Returns errors of `work`. No sample is recorded in this case.
    pub fn measure(
        &mut self,
        phase: Phase,
        work: impl FnOnce(&mut Timed<'_>) -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        let tree = self.target.tree()?;
        let wrapped = self.slowed.map(|share| SlowedTree { tree, share });
        let mut timed = Timed {
            target: &*self.target,
            tree: wrapped.as_ref().map_or(tree, |wrapped| wrapped),
            slowed: self.slowed,
            interrupt: &self.interrupt,
            sample: Sample {
                phase: phase.full_name(),
                threads: phase.threads,
                size_bytes: phase.size,
                ..self.template.clone()
            },
        };
        let active = self.meeting.map(|(_, meeting)| meeting.begin(&self.interrupt)).transpose()?;
        let recording = self.begin_recording(&timed.sample)?;
        let around = Surroundings::look(self.backing)?;
        let before = Reading::take(&*self.target)?;
        let start = Instant::now();
        work(&mut timed)?;
        let elapsed = start.elapsed();
        let after = Reading::take(&*self.target)?;
        let mut sample = timed.sample;
        sample.elapsed_ns = nanoseconds(elapsed);
        after.record_since(&before, &mut sample);
        Surroundings::look(self.backing)?.record_since(&around, &mut sample);
        recording.map_or(Ok(()), Active::end)?;
        sample.used_bytes = self.target.used_bytes()?;
        let known = self.cache(phase.cache, sample.cache.resident_pages);
        sample.cache = known.judged(sample.device);
        sample.contaminated = contamination(&sample, self.meeting.is_some());
        if let Some((active, (label, _))) = active.zip(self.meeting) {
            make_part(&mut sample, label, active.end());
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Starts the recordings of a phase. Their files are named after its sample.
    fn begin_recording(&self, sample: &Sample) -> Result<Option<Active<'a>>> {
        let Some(recorder) = self.recorder else { return Ok(None) };
        let size = sample.size_bytes.map(|size| format!(".{size}")).unwrap_or_default();
        let name = format!(
            "{}.{}{size}.{}.round-{}-{}",
            sample.workload,
            sample.phase,
            sample.target,
            sample.round + 1,
            sample.attempt + 1
        );
        recorder.begin(&name, self.target.device()).map(Some)
    }

    /// Returns the requested state of the cache and the evidence for it.
    fn cache(&self, asked: CacheState, resident_pages: Option<u64>) -> Cache {
        let remounted = self.remounted.filter(|_| asked == CacheState::Cold);
        Cache {
            asked,
            remounted: remounted.is_some_and(|remounted| !remounted.evicted),
            evicted: remounted.is_some_and(|remounted| remounted.evicted),
            proven: false,
            resident_pages,
            device_pages: remounted.and_then(|remounted| remounted.device_pages),
            doubt: None,
        }
    }
}

/// Converts a sample to the sample of one workload among several concurrent ones. `alone` is the
/// time during which no other workload was in a phase. Counters are removed, because they include
/// the other workloads.
fn make_part(sample: &mut Sample, label: &str, alone: Duration) {
    sample.phase = name_of_part(label, &sample.phase);
    (sample.user_ns, sample.system_ns, sample.daemon_cpu_ns) = (0, 0, None);
    (sample.device, sample.backing, sample.fuse_requests) = (None, None, None);
    sample.requests.clear();
    sample.thread_times.clear();
    sample.metrics.push(OwnMetric {
        name: "alone".to_owned(),
        value: alone.as_secs_f64(),
        unit: "s".to_owned(),
        better: Better::Less,
    });
}

/// The timed part of a phase.
pub struct Timed<'a> {
    target: &'a dyn Target,
    tree: &'a dyn Tree,
    slowed: Option<f64>,
    interrupt: &'a Interrupt,
    /// The work counted so far.
    sample: Sample,
}

impl<'a> Timed<'a> {
    /// Returns the tree of the target.
    #[must_use]
    pub fn tree(&self) -> &'a dyn Tree {
        self.tree
    }

    /// Adds operations and bytes to the counted work.
    pub fn count(&mut self, operations: u64, bytes: u64) {
        self.sample.operations += operations;
        self.sample.bytes += bytes;
    }

    /// Adds the durations of one kind of operation.
    pub fn record(&mut self, operation: &'static str, stopwatch: Stopwatch) {
        let (latency, along) = stopwatch.finish(operation);
        self.sample.latencies.extend(latency);
        self.sample.along.extend(along);
    }

    /// Calls `act` for each item and records the durations under the name `operation`. Stops if the
    /// run is interrupted.
    ///
    /// # Errors
    /// Returns errors of the operation, and [`Error::Interrupted`].
    pub fn each<T>(
        &mut self,
        operation: &'static str,
        mut stopwatch: Stopwatch,
        items: impl IntoIterator<Item = T>,
        mut act: impl FnMut(&mut Self, T) -> Result<()>,
    ) -> Result<()> {
        for item in items {
            self.check()?;
            act(self, item)?;
            stopwatch.lap();
        }
        self.record(operation, stopwatch);
        Ok(())
    }

    /// Records the number of threads or processes that did the work, and the durations of their
    /// operations.
    pub fn record_workers(&mut self, operation: &'static str, stopwatches: Vec<Stopwatch>) {
        self.sample.workers = u32::try_from(stopwatches.len()).ok().filter(|workers| *workers > 1);
        if let Some(all) = stopwatches.into_iter().reduce(Stopwatch::joined_with) {
            self.record(operation, all);
        }
    }

    /// Records the number of threads or processes that read and wrote, and the durations.
    /// `operations` contains the names for reads and for writes.
    pub fn record_directions(
        &mut self,
        operations: [&'static str; 2],
        directions: Vec<Directions>,
    ) {
        let (reads, writes) = directions.into_iter().map(|one| (one.reads, one.writes)).unzip();
        self.record_workers(operations[0], reads);
        self.record_workers(operations[1], writes);
    }

    /// Adds a metric that the workload measured itself.
    pub fn add_metric(&mut self, metric: OwnMetric) {
        self.sample.metrics.push(metric);
    }

    /// Adds processor time of child processes that are still running, which is not measured
    /// otherwise.
    pub fn add_processor_time(&mut self, user: Duration, system: Duration) {
        self.sample.user_ns += nanoseconds(user);
        self.sample.system_ns += nanoseconds(system);
    }

    /// Returns the flag that interrupts the run, for use by threads.
    #[must_use]
    pub fn interrupt(&self) -> &'a Interrupt {
        self.interrupt
    }

    /// Returns an error if the run was interrupted.
    ///
    /// # Errors
    /// Returns [`Error::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if self.interrupt.is_raised() { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Opens a file and counts its cached pages.
    ///
    /// # Errors
    /// Returns errors of both calls.
    pub fn open_for_reading(&mut self, path: &str) -> Result<Box<dyn TreeFile + 'a>> {
        let file = self.tree.open(path, Access::Read)?;
        if let Some(pages) = file.resident_pages()? {
            *self.sample.cache.resident_pages.get_or_insert(0) += pages;
        }
        Ok(file)
    }

    /// Makes a file durable and counts the time as flushing.
    ///
    /// # Errors
    /// Returns errors of fsync.
    pub fn sync(&mut self, file: &dyn TreeFile) -> Result<()> {
        let start = Instant::now();
        file.sync()?;
        self.sample.flush_ns += nanoseconds(start.elapsed());
        Ok(())
    }

    /// Makes all data durable: calls syncfs on the target, then on the lower file system, because a
    /// file system in user space receives no syncfs.
    ///
    /// # Errors
    /// Returns errors of both calls.
    pub fn flush(&mut self) -> Result<()> {
        let start = Instant::now();
        self.tree.sync_all()?;
        match self.slowed {
            None => self.target.sync_below()?,
            Some(share) => slowed(share, || self.target.sync_below())?,
        }
        self.sample.flush_ns += nanoseconds(start.elapsed());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use fslab_sys::block_counters::DeviceNumber;
    use fslab_sys::signals::Interrupt;
    use fslab_vfs::FileSystem;
    use fslab_vfs_testing::skip::skip;

    use super::{CacheState, Phase, Sample, Session};
    use crate::error::{Error, Result};
    use crate::host::{Host, HostError};
    use crate::plan::{Form, Plan};
    use crate::target::{Remounted, Target, Workshop, make};
    use crate::tree::{Access, HostTree, Tree, TreeFile};
    use fslab_report::sample::Doubt;

    /// A target that reports a remount but does not perform it, so its files remain cached.
    struct Warm(HostTree);

    impl Target for Warm {
        fn tree(&self) -> Result<&dyn Tree> {
            Ok(&self.0)
        }
        fn remount(&mut self) -> Result<Option<Remounted>> {
            Ok(Some(Remounted { evicted: false, device_pages: Some(0) }))
        }
        fn device(&self) -> Option<DeviceNumber> {
            None
        }
        fn daemon(&self) -> Option<u32> {
            None
        }
        fn sync_below(&self) -> Result<()> {
            Ok(())
        }
        fn tear_down(self: Box<Self>) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn cold_phase_on_a_warm_target_is_not_proven_cold() {
        let directory = tempfile::tempdir_in(".").unwrap();
        fs::write(directory.path().join("file"), vec![1; 1 << 16]).unwrap();
        let mut target = Warm(HostTree::open(directory.path()).unwrap());
        let mut session = Session::new(&mut target, Sample::default(), Interrupt::default());
        session.make_cold().unwrap();
        let phase = Phase::new("read").cache(CacheState::Cold);
        session.measure(phase, |timed| timed.open_for_reading("file").map(|_| ())).unwrap();
        let samples = session.samples;
        assert!(samples[0].cache.resident_pages.unwrap() > 0);
        assert!(samples[0].cache.remounted && !samples[0].cache.proven);
        assert_eq!(samples[0].cache.doubt, Some(Doubt::FilesResident));
    }

    struct NoHost;

    impl Host for NoHost {
        fn mount_command(&self, _: &[String], _: &Path, _: &Path) -> Vec<OsString> {
            Vec::new()
        }
        fn file_system(&self, _: &str) -> std::result::Result<Box<dyn FileSystem>, HostError> {
            Err("none".into())
        }
    }

    /// On ext4, the state of the cache after a remount is proven to be cold. A file that was read
    /// between the remount and the phase is detected by its cached pages. If only the attributes of
    /// a file were read, the phase then reads nothing from the device, which is detected.
    #[test]
    fn target_warmed_before_a_cold_phase_is_detected() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            skip("target_warmed_before_a_cold_phase_is_detected", "no root or no loop devices");
            return;
        }
        let work = tempfile::tempdir_in(".").unwrap();
        let work = work.path().canonicalize().unwrap();
        let text = "name = \"p\"\n[[target]]\nname = \"t\"\nfilesystem = \"ext4\"\n\
                    [[workload]]\nname = \"stream\"\n";
        let plan = Plan::parse("test", text, Form::Full).unwrap().targets.remove(0);
        let shop = Workshop { host: &NoHost, work_directory: &work, image_size: 320 << 20 };
        let (mut target, _) = make(&plan, shop).unwrap();
        let allocated = fs::metadata(work.join("image")).unwrap().blocks() * 512;
        assert!(allocated >= shop.image_size, "the host would allocate while the clock runs");
        let mut session =
            Session::new(&mut *target.target, Sample::default(), Interrupt::default());
        let file = session.tree().unwrap().create("file").unwrap();
        file.write_at(0, &[7; 1 << 16]).unwrap();
        file.close().unwrap();
        let read = |file: &dyn TreeFile| file.read_at(0, &mut [0; 1 << 16]).map(|_| ());
        let cold = Phase::new("read").cache(CacheState::Cold);
        for warmed in [false, true] {
            session.make_cold().unwrap();
            if warmed {
                let tree = session.tree().unwrap();
                read(&*tree.open("file", Access::Read).unwrap()).unwrap();
            }
            session.measure(cold, |timed| read(&*timed.open_for_reading("file")?)).unwrap();
        }
        session.make_cold().unwrap();
        session.tree().unwrap().status("file").unwrap();
        session.measure(cold, |timed| timed.tree().status("file").map(|_| ())).unwrap();
        let doubts: Vec<_> = session.samples.iter().map(|s| s.cache.doubt).collect();
        target.tear_down().unwrap();
        assert_eq!(doubts, [None, Some(Doubt::FilesResident), Some(Doubt::DeviceNotRead)]);
    }

    #[test]
    fn an_interrupted_session_stops_before_and_within_a_phase() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let mut target = Warm(HostTree::open(directory.path()).unwrap());
        let interrupt = Interrupt::default();
        let mut session = Session::new(&mut target, Sample::default(), interrupt.clone());
        let within = session.measure(Phase::new("work"), |timed| {
            interrupt.raise();
            timed.check()
        });
        assert!(matches!(within, Err(Error::Interrupted)));
        assert!(matches!(session.make_cold(), Err(Error::Interrupted)));
        assert!(session.samples.is_empty());
    }
}
