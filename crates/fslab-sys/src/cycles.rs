//! Reads the processor's cycle counter so that neither the compiler nor the processor can move the
//! measured code out of the interval.
//!
//! Processors reorder instructions. `lfence` on x86 waits for all earlier instructions and delays
//! all later ones. The interval extends from `lfence; rdtsc; lfence` to `rdtscp; lfence`. `rdtscp`
//! itself waits for earlier instructions, and reports the processor on which it ran. The counter
//! counts *reference* cycles at a constant rate, not core cycles, whose frequency changes. See
//! Intel's manual, volume 2B, RDTSC and RDTSCP.

use std::fs;
use std::io;

/// The reason why the cycle counter can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The processor has another architecture.
    #[error("the cycle counter can be read only on x86-64")]
    Architecture,
    /// The processor is old, or a virtual machine hides the instruction.
    #[error("the processor has no RDTSCP")]
    NoRdtscp,
}

/// The values read at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Value of the counter.
    pub ticks: u64,
    /// The number that the kernel assigned to the processor (`IA32_TSC_AUX`): different numbers
    /// mean different processors.
    pub processor: u32,
}

/// The cycle counter of a supported processor.
#[derive(Clone, Copy, Debug)]
pub struct CycleCounter(());

impl CycleCounter {
    /// Returns the counter if it can be read.
    ///
    /// # Errors
    /// [`Unavailable`] if it can't.
    pub fn new() -> Result<Self, Unavailable> {
        counter::check().map(|()| Self(()))
    }

    /// Reads the counter at the beginning of an interval.
    #[must_use]
    #[inline]
    pub fn begin(self) -> u64 {
        counter::begin()
    }

    /// Reads the counter at the end of an interval.
    #[must_use]
    #[inline]
    pub fn end(self) -> End {
        counter::end()
    }

    /// Whether the processor reports that the counter has a constant rate in all power states.
    #[must_use]
    pub fn is_invariant(self) -> bool {
        counter::is_invariant()
    }
}

/// Returns the kernel's current clock source. `tsc` means that the kernel has compared the counters
/// of all processors and trusts them.
///
/// # Errors
/// sysfs does not report it.
pub fn clock_source() -> io::Result<String> {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid;

    use super::{End, Unavailable};

    const EXTENDED_FEATURES: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;

    pub fn check() -> Result<(), Unavailable> {
        if edx_of(EXTENDED_FEATURES) & RDTSCP == 0 { Err(Unavailable::NoRdtscp) } else { Ok(()) }
    }

    pub fn is_invariant() -> bool {
        edx_of(POWER_MANAGEMENT) & INVARIANT != 0
    }

    fn edx_of(leaf: u32) -> u32 {
        #[allow(unused_unsafe, reason = "unsafe in older compilers of the supported range only")]
        // SAFETY: every x86-64 processor has CPUID, and leaf 0x80000000 reports the available
        // leaves.
        unsafe {
            if __cpuid(0x8000_0000).eax < leaf { 0 } else { __cpuid(leaf).edx }
        }
    }

    #[inline]
    pub fn begin() -> u64 {
        let (low, high): (u64, u64);
        // SAFETY: reads a counter into two registers that are declared as outputs. The block is not
        // marked `nomem`, so that the compiler moves no memory access across it.
        unsafe {
            asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high, options(nostack));
        }
        high << 32 | low
    }

    #[inline]
    pub fn end() -> End {
        let (low, high, processor): (u64, u64, u32);
        // SAFETY: as above; the processor has RDTSCP, because only `check` makes a `CycleCounter`.
        unsafe {
            asm!(
                "rdtscp", "lfence",
                out("rax") low, out("rdx") high, out("ecx") processor, options(nostack)
            );
        }
        End { ticks: high << 32 | low, processor }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    use super::{End, Unavailable};

    pub fn check() -> Result<(), Unavailable> {
        Err(Unavailable::Architecture)
    }

    pub fn is_invariant() -> bool {
        false
    }

    pub fn begin() -> u64 {
        0
    }

    pub fn end() -> End {
        End { ticks: 0, processor: 0 }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::CycleCounter;

    /// Maximum number of measurements.
    const ROUNDS_MAX: u32 = 10_000;

    /// If work could move out of its interval, more work would not take more cycles.
    #[test]
    fn more_work_takes_more_cycles() {
        let counter = CycleCounter::new().unwrap();
        let ticks_of = |work: u64| {
            let begin = counter.begin();
            let mut sum = 0_u64;
            for number in 0..work {
                sum = std::hint::black_box(sum ^ number);
            }
            counter.end().ticks.saturating_sub(begin)
        };
        // On a busy machine, most intervals also include the work of other processes, so minima are
        // compared.
        let (mut little, mut much) = (u64::MAX, u64::MAX);
        for _ in 0..ROUNDS_MAX {
            little = little.min(ticks_of(1_000));
            much = much.min(ticks_of(100_000));
            if much > 20 * little {
                return;
            }
        }
        panic!("{little} and {much} cycles");
    }
}
