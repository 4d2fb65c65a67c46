//! Planted bugs, which change the order in which a layer makes data durable. They are observers
//! between the layer and the test double, so any bug can be combined with any layer.

use std::sync::Arc;

use fslab_layers::observe::fault::{Fault, Program};
use fslab_vfs::{FileSystem, Handle, Ino, Request, Result, WriteOptions};
use fslab_vfs_testing::crash::overtaking::{Bug, Call, LateSync, Verdict, with_bug};
use parking_lot::Mutex;

/// A planted bug.
pub struct Mutant {
    pub bug: &'static str,
    /// A layer that performs the operation which the bug changes.
    pub layer: &'static str,
    /// Inserts the bug between the layer and the lower file system.
    pub plant: fn(Arc<dyn FileSystem>) -> Arc<dyn FileSystem>,
}

const GZIP: &str = "gzip:chunk=4KiB,threads=1,level=1,cache=0";
/// A layer whose frames contain whole blocks, which can be punched.
const COPY: &str = "copy:chunk=16KiB,threads=1,tails=off,cache=0";

/// A layer that packs files at nearly every close.
const PACKED: &str = "gzip:chunk=4KiB,threads=1,level=1,cache=0,garbage=4KiB,pack=close";

pub const MUTANTS: &[Mutant] = &[
    Mutant { bug: "no fsync is done", layer: GZIP, plant: |inner| faulty(inner, "fsync skip") },
    Mutant {
        bug: "every third fsync is dropped",
        layer: GZIP,
        plant: |inner| faulty(inner, "fsync every 3 skip"),
    },
    Mutant { bug: "syncfs is dropped", layer: GZIP, plant: |inner| faulty(inner, "syncfs skip") },
    Mutant {
        bug: "directories are not synced",
        layer: GZIP,
        plant: |inner| faulty(inner, "fsyncdir skip"),
    },
    Mutant {
        bug: "the root slot is written before what it points to is durable",
        layer: GZIP,
        plant: |inner| {
            late_sync(
                inner,
                |next| matches!(next, Call::Write { offset, .. } if *offset < HEAD_BYTES),
            )
        },
    },
    Mutant {
        bug: "the slot of a packed file is written before the packed file is durable",
        layer: PACKED,
        plant: |inner| {
            late_sync(
                inner,
                |next| matches!(next, Call::Write { offset, .. } if *offset < HEAD_BYTES),
            )
        },
    },
    Mutant {
        bug: "packing removes data before the slot that does not need it is durable",
        layer: PACKED,
        plant: |inner| {
            late_sync(inner, |next| {
                is_checkpoint(next) || matches!(next, Call::SetAttr { size: Some(_) })
            })
        },
    },
    Mutant {
        bug: "dead frames are punched before the new ones are durable",
        layer: COPY,
        plant: |inner| with_bug(inner, PunchEarly::default()),
    },
];

/// This bug shows only after two power cuts, with frames of fitting lengths: see `leftovers`.
pub const NO_ZEROS: Mutant = Mutant {
    bug: "no zeros are written after the checkpoint of a packed file",
    layer: COPY,
    plant: |inner| with_bug(inner, NoZeros),
};

/// This bug shows only if a file has unknown bytes at its end: see `quarantine`.
pub const EARLY_BLANK: Mutant = Mutant {
    bug: "unknown bytes are blanked before their copies are durable",
    layer: COPY,
    plant: |inner| {
        late_sync(
            inner,
            |next| matches!(next, Call::Write { data, .. } if data.iter().all(|byte| *byte == 0)),
        )
    },
};

/// This bug shows only if chunks are staged: see `staging`.
pub const NO_STAGING: Mutant = Mutant {
    bug: "chunks are acknowledged before they are in the staging area",
    layer: GZIP,
    plant: |inner| with_bug(inner, SkippedFarWrites),
};

/// Size of a stored file's head, which contains the identity and the slots, in bytes.
const HEAD_BYTES: u64 = 1024;

fn faulty(inner: Arc<dyn FileSystem>, rules: &str) -> Arc<dyn FileSystem> {
    let program = Program::parse("planted", rules, 0).unwrap();
    Arc::new(Fault::new(inner, program, Box::new(|_, _| Ok(()))))
}

/// Delays an fsync until the next call that changes something. If `is_overtaking` accepts that
/// call, the fsync is performed only after it.
struct Overtaken {
    is_overtaking: fn(&Call<'_>) -> bool,
    pending: Mutex<Option<LateSync>>,
}

fn late_sync(
    inner: Arc<dyn FileSystem>,
    is_overtaking: fn(&Call<'_>) -> bool,
) -> Arc<dyn FileSystem> {
    with_bug(inner, Overtaken { is_overtaking, pending: Mutex::default() })
}

/// Whether a call writes directly after the head.
fn is_checkpoint(call: &Call<'_>) -> bool {
    matches!(call, Call::Write { offset: HEAD_BYTES, .. })
}

impl Overtaken {
    fn catch_up(&self, below: &dyn FileSystem) -> Result<()> {
        let pending = self.pending.lock().take();
        pending.map_or(Ok(()), |sync| sync.perform(below))
    }
}

impl Bug for Overtaken {
    fn before(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict> {
        if let Some(sync) = LateSync::of(request, ino, call) {
            // A sync that already waits is replaced by this one.
            *self.pending.lock() = Some(sync);
            return Ok(Verdict::Skip);
        }
        // The layer restores a file's times after each step; this call may overtake a sync as well.
        let changes_nothing =
            matches!(call, Call::Read | Call::Open { .. } | Call::SetAttr { size: None });
        if !changes_nothing && !(self.is_overtaking)(call) {
            self.catch_up(below)?;
        }
        Ok(Verdict::Do)
    }

    fn after(&self, below: &dyn FileSystem, _: &Request, _: Ino, call: &Call<'_>) -> Result<()> {
        let is_overtaken = (self.is_overtaking)(call) && !is_checkpoint(call);
        if is_overtaken { self.catch_up(below) } else { Ok(()) }
    }
}

/// Delays a sync, and the slot written after it, until the first call other than fallocate, open,
/// and changes of attributes. So only those calls overtake the sync.
#[derive(Default)]
struct PunchEarly {
    kept: Mutex<Vec<Kept>>,
}

enum Kept {
    Sync(LateSync),
    Slot { request: Request, ino: Ino, handle: Handle, offset: u64, data: Vec<u8> },
}

impl Kept {
    fn perform(&self, below: &dyn FileSystem) -> Result<()> {
        match self {
            Self::Sync(sync) => sync.perform(below),
            Self::Slot { request, ino, handle, offset, data } => {
                let options = WriteOptions::default();
                below.write(request, *ino, *handle, *offset, data, options).map(drop)
            }
        }
    }
}

impl PunchEarly {
    fn catch_up(&self, below: &dyn FileSystem) -> Result<()> {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.iter().try_for_each(|kept| kept.perform(below))
    }

    /// Returns the write of a slot, if it follows a delayed sync.
    fn slot(&self, request: &Request, ino: Ino, call: &Call<'_>) -> Option<Kept> {
        let Call::Write { handle, offset: offset @ 0..HEAD_BYTES, data } = *call else {
            return None;
        };
        let (request, data) = (request.clone(), data.to_vec());
        let follows = !self.kept.lock().is_empty();
        follows.then_some(Kept::Slot { request, ino, handle, offset, data })
    }
}

impl Bug for PunchEarly {
    fn before(
        &self,
        below: &dyn FileSystem,
        request: &Request,
        ino: Ino,
        call: &Call<'_>,
    ) -> Result<Verdict> {
        if let Some(slot) = self.slot(request, ino, call) {
            self.kept.lock().push(slot);
            return Ok(Verdict::Skip);
        }
        let overtakes = matches!(
            call,
            Call::Fallocate | Call::SetAttr { .. } | Call::SetXattr { .. } | Call::Open { .. }
        );
        if !overtakes {
            self.catch_up(below)?;
        }
        let Some(sync) = LateSync::of(request, ino, call) else { return Ok(Verdict::Do) };
        self.kept.lock().push(Kept::Sync(sync));
        Ok(Verdict::Skip)
    }
}

/// Omits writes of zeros after the head.
struct NoZeros;

impl Bug for NoZeros {
    fn before(&self, _: &dyn FileSystem, _: &Request, _: Ino, call: &Call<'_>) -> Result<Verdict> {
        let is_blank = matches!(call, Call::Write { offset: HEAD_BYTES.., data, .. }
            if data.iter().all(|byte| *byte == 0));
        Ok(if is_blank { Verdict::Skip } else { Verdict::Do })
    }
}

/// Skips writes far behind all frames, which are those to a staging area.
struct SkippedFarWrites;

impl Bug for SkippedFarWrites {
    fn before(&self, _: &dyn FileSystem, _: &Request, _: Ino, call: &Call<'_>) -> Result<Verdict> {
        let is_far = matches!(call, Call::Write { offset, .. } if *offset > 64 << 20);
        Ok(if is_far { Verdict::Skip } else { Verdict::Do })
    }
}
