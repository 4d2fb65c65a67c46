//! [`CrashDevice`]: a block device in memory that records all writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use fslab_vfs::{BlockDevice, MemoryDevice};
use fslab_vfs::{Errno, Result};

use super::survivors::{Candidate, Plan, Survivors, choices};

/// A block device that shows the possible states after a power cut. See [`super`].
#[derive(Debug)]
pub struct CrashDevice {
    memory: MemoryDevice,
    sector_bytes: u64,
    log: Mutex<Vec<Event>>,
}

#[derive(Clone, Debug)]
enum Event {
    /// A write or a discard, with the content of its sectors afterwards.
    Write {
        text: String,
        sectors: Vec<(u64, Arc<[u8]>)>,
    },
    Flush,
}

/// Every write, discard and flush, in order.
#[derive(Clone, Debug)]
pub struct DeviceLog {
    size: u64,
    sector_bytes: u64,
    events: Vec<Event>,
}

/// A possible state of a device after a power cut.
#[derive(Debug)]
pub struct DeviceState {
    /// Number of writes, discards and flushes that had returned.
    pub point: usize,
    /// The writes since the last flush that survived.
    pub survivors: Survivors,
    size: u64,
    sector_bytes: u64,
    sectors: Sectors,
}

type Sectors = BTreeMap<u64, Arc<[u8]>>;

impl CrashDevice {
    /// A device of zeros. Its sectors of `sector_bytes` are written atomically.
    ///
    /// # Errors
    /// `EINVAL` if `size` is not a multiple of `sector_bytes`.
    pub fn new(size: u64, sector_bytes: u64) -> Result<Self> {
        if sector_bytes == 0 || !size.is_multiple_of(sector_bytes) {
            return Err(Errno::INVAL.into());
        }
        Ok(Self { memory: MemoryDevice::new(size), sector_bytes, log: Mutex::default() })
    }

    /// Number of writes, discards and flushes so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.log.lock().len()
    }

    /// All events so far.
    #[must_use]
    pub fn log(&self) -> DeviceLog {
        DeviceLog {
            size: self.memory.size(),
            sector_bytes: self.sector_bytes,
            events: self.log.lock().clone(),
        }
    }

    fn note(&self, log: &mut Vec<Event>, text: String, offset: u64, length: u64) -> Result<()> {
        let sector_bytes = self.sector_bytes;
        let mut sectors = Vec::new();
        for number in offset / sector_bytes..(offset + length).div_ceil(sector_bytes) {
            let mut bytes = vec![0; sector_bytes as usize];
            self.memory.read_at(number * sector_bytes, &mut bytes)?;
            sectors.push((number, bytes.into()));
        }
        log.push(Event::Write { text, sectors });
        Ok(())
    }
}

impl BlockDevice for CrashDevice {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.memory.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut log = self.log.lock();
        self.memory.write_at(offset, data)?;
        let text = format!("write {} bytes at {offset}", data.len());
        self.note(&mut log, text, offset, data.len() as u64)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let mut log = self.log.lock();
        self.memory.discard(offset, length)?;
        self.note(&mut log, format!("discard {length} bytes at {offset}"), offset, length)
    }

    fn flush(&self) -> Result<()> {
        let mut log = self.log.lock();
        self.memory.flush()?;
        log.push(Event::Flush);
        Ok(())
    }
}

impl DeviceState {
    /// Opens the device as it is after the power cut.
    ///
    /// # Errors
    /// Only if the log is invalid.
    pub fn open(&self) -> Result<MemoryDevice> {
        let device = MemoryDevice::new(self.size);
        for (number, bytes) in &self.sectors {
            device.write_at(number * self.sector_bytes, bytes)?;
        }
        Ok(device)
    }
}

impl DeviceLog {
    /// Number of points at which a power cut is simulated: before the first event, and after each
    /// event.
    #[must_use]
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// The points right before each flush, when most writes are pending.
    #[must_use]
    pub fn points_before_flushes(&self) -> Vec<usize> {
        let events = self.events.iter().enumerate();
        events.filter(|(_, event)| matches!(event, Event::Flush)).map(|(point, _)| point).collect()
    }

    /// Calls `visit` with the possible states at each point that `wanted` accepts. Returns the
    /// number of states. Sectors survive independently. A sector written twice since the last flush
    /// has the old content or either of the new ones.
    ///
    /// # Errors
    /// The first error of `visit`, with the point, the surviving writes, and the events before.
    pub fn for_each_state(
        &self,
        plan: &Plan,
        wanted: &dyn Fn(usize) -> bool,
        visit: &mut dyn FnMut(&DeviceState) -> std::result::Result<(), String>,
    ) -> std::result::Result<usize, String> {
        let mut durable = Sectors::new();
        let mut pending: Vec<(u64, Arc<[u8]>)> = Vec::new();
        let mut count = 0;
        for point in 0..self.points() {
            match point.checked_sub(1).and_then(|last| self.events.get(last)) {
                Some(Event::Flush) => durable.extend(pending.drain(..)),
                Some(Event::Write { sectors, .. }) => pending.extend(sectors.iter().cloned()),
                None => {}
            }
            if !wanted(point) {
                continue;
            }
            for state in self.states(plan, point, &durable, &pending) {
                count += 1;
                visit(&state).map_err(|problem| self.report(&state, &problem))?;
            }
        }
        Ok(count)
    }

    fn states(
        &self,
        plan: &Plan,
        point: usize,
        durable: &Sectors,
        pending: &[(u64, Arc<[u8]>)],
    ) -> impl Iterator<Item = DeviceState> {
        let candidates = vec![Candidate { class: 0 }; pending.len()];
        choices(plan, point, &candidates, &|_| Vec::new()).into_iter().map(
            move |(survivors, kept)| {
                let mut sectors = durable.clone();
                let kept = pending.iter().zip(kept).filter(|(_, kept)| *kept);
                sectors.extend(kept.map(|((number, bytes), _)| (*number, Arc::clone(bytes))));
                let (size, sector_bytes) = (self.size, self.sector_bytes);
                DeviceState { point, survivors, size, sector_bytes, sectors }
            },
        )
    }

    fn report(&self, state: &DeviceState, problem: &str) -> String {
        const LAST: usize = 40;
        let first = state.point.saturating_sub(LAST);
        let text = |event: &Event| match event {
            Event::Write { text, .. } => text.clone(),
            Event::Flush => "flush".to_owned(),
        };
        let events = self.events.iter().enumerate().take(state.point).skip(first);
        let lines: Vec<_> =
            events.map(|(number, event)| format!("  {:4}: {}", number + 1, text(event))).collect();
        format!(
            "{problem}\nafter a power cut after event {} of {}, where {}; events before:\n{}",
            state.point,
            self.events.len(),
            state.survivors,
            lines.join("\n")
        )
    }
}
