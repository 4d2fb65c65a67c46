//! [`CrashDevice`]: a block device in memory that writes down what is written to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use fslab_vfs::{BlockDevice, MemoryDevice};
use fslab_vfs::{Errno, Result};

use super::survivors::{Candidate, Plan, Survivors, choices};

/// A block device that can tell what a power cut would leave. See [`super`].
#[derive(Debug)]
pub struct CrashDevice {
    memory: MemoryDevice,
    sector_bytes: u64,
    log: Mutex<Vec<Event>>,
}

#[derive(Clone, Debug)]
enum Event {
    /// Sectors, as they are after a write.
    Write {
        text: String,
        sectors: Vec<(u64, Arc<[u8]>)>,
    },
    Flush,
}

/// Every write and every flush, in order.
#[derive(Clone, Debug)]
pub struct DeviceLog {
    size: u64,
    sector_bytes: u64,
    events: Vec<Event>,
}

/// What a device holds after a power cut.
#[derive(Debug)]
pub struct DeviceState {
    /// How many writes and flushes had returned.
    pub point: usize,
    /// What survived of the writes since the last flush.
    pub survivors: Survivors,
    size: u64,
    sector_bytes: u64,
    sectors: Sectors,
}

type Sectors = BTreeMap<u64, Arc<[u8]>>;

impl CrashDevice {
    /// A device of zeros. What can't be torn are sectors of `sector_bytes`, of which `size` is a
    /// multiple.
    ///
    /// # Errors
    /// `EINVAL` where it is not.
    pub fn new(size: u64, sector_bytes: u64) -> Result<Self> {
        if sector_bytes == 0 || !size.is_multiple_of(sector_bytes) {
            return Err(Errno::INVAL.into());
        }
        Ok(Self { memory: MemoryDevice::new(size), sector_bytes, log: Mutex::default() })
    }

    /// How many writes, discards and flushes there were so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.log.lock().len()
    }

    /// Everything that was done so far.
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
    /// The device as it is found after the power cut.
    ///
    /// # Errors
    /// None that a sound log gives.
    pub fn open(&self) -> Result<MemoryDevice> {
        let device = MemoryDevice::new(self.size);
        for (number, bytes) in &self.sectors {
            device.write_at(number * self.sector_bytes, bytes)?;
        }
        Ok(device)
    }
}

impl DeviceLog {
    /// Points at which the power may go: before the first event, and after each.
    #[must_use]
    pub fn points(&self) -> usize {
        self.events.len() + 1
    }

    /// The points right before each flush, at which most is at stake.
    #[must_use]
    pub fn points_before_flushes(&self) -> Vec<usize> {
        let events = self.events.iter().enumerate();
        events.filter(|(_, event)| matches!(event, Event::Flush)).map(|(point, _)| point).collect()
    }

    /// Calls `visit` with the states after a power cut at each point that is `wanted`, and answers
    /// how many there were. Sectors survive each for itself; a sector written twice since the last
    /// flush has either content, or the one from before.
    ///
    /// # Errors
    /// The first that `visit` answers, with the point, what survived, and the events before.
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
            "{problem}\nafter a power cut behind event {} of {}, where {}; events before:\n{}",
            state.point,
            self.events.len(),
            state.survivors,
            lines.join("\n")
        )
    }
}
