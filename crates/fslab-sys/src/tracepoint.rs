//! Counts how often the kernel passes a tracepoint, by the value of one field of its events,
//! without recording a trace.
//!
//! A BPF program of a few instructions runs at the tracepoint and counts in an array in the kernel.
//! The program is written here as instructions, so that neither a compiler nor a loader of object
//! files is needed. Its instructions and the structures for bpf(2) are in include/uapi/linux/bpf.h.

use std::collections::BTreeMap;
use std::ffi::c_long;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::processors;

/// From include/uapi/linux/perf_event.h: the event is a tracepoint, given by its number.
const PERF_TYPE_TRACEPOINT: u32 = 2;

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// `_IOW('$', 8, __u32)`: runs a BPF program at the tracepoint of an event.
const PERF_EVENT_IOC_SET_BPF: libc::Ioctl = 0x4004_2408;

/// Number of values that are counted separately; the last count is for all larger values.
const VALUES: u32 = 64;

/// The first version of `struct perf_event_attr`; the kernel treats later fields as zero.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    config1: u64,
}

const _: () = assert!(size_of::<EventAttributes>() == 64);

/// A tracepoint of the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    id: u64,
    /// Offsets of the fields of four bytes.
    fields: BTreeMap<String, i16>,
    /// Names of values, as the kernel would print them.
    names: BTreeMap<u32, String>,
}

impl Tracepoint {
    /// Finds a tracepoint, such as `fuse/fuse_request_send`, in a mounted tracefs.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no such tracepoint, or tracefs is not mounted there.
    pub fn find(tracefs: &Path, name: &str) -> io::Result<Self> {
        let text = fs::read_to_string(tracefs.join("events").join(name).join("format"))?;
        Self::parse(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{name}: unknown format: {text:?}"))
        })
    }

    /// Parses the file `format` of a tracepoint, which Documentation/trace/events.rst describes.
    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(|line| {
            let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
            let name = declaration.rsplit(' ').next()?;
            let value = |key: &str| {
                let part = rest.split(';').find_map(|part| part.trim().strip_prefix(key))?;
                part.parse::<i16>().ok()
            };
            (value("size:")? == 4).then_some((name.to_owned(), value("offset:")?))
        });
        // Without this line, the values have no names.
        let printed = text.lines().find(|line| line.starts_with("print fmt:")).unwrap_or_default();
        // The names are listed as: {1, "FUSE_LOOKUP"}, {2, "FUSE_FORGET"}
        let names = printed.split('{').filter_map(|part| {
            let (value, rest) = part.split_once(", \"")?;
            Some((value.parse().ok()?, rest.split_once('"')?.0.to_owned()))
        });
        Some(Self { id, fields: fields.collect(), names: names.collect() })
    }

    fn offset(&self, field: &str) -> io::Result<i16> {
        self.fields.get(field).copied().ok_or_else(|| {
            let text = format!("the tracepoint has no field `{field}` of four bytes");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

/// Counts the events of a tracepoint since the counter's creation, by the value of a field.
#[derive(Debug)]
pub struct Counter {
    counts: OwnedFd,
    names: BTreeMap<u32, String>,
    /// The event that the program is attached to. Closing it detaches the program.
    _event: OwnedFd,
}

impl Counter {
    /// Starts counting the events whose field `only.0` has the value `only.1`, by the value of the
    /// field `by`.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without CAP_PERFMON and CAP_BPF; `ENOSYS` if the kernel has no bpf(2);
    /// `InvalidData` if a field does not exist.
    pub fn new(tracepoint: &Tracepoint, only: (&str, u32), by: &str) -> io::Result<Self> {
        let counts = make_array()?;
        let places = (tracepoint.offset(only.0)?, tracepoint.offset(by)?);
        let program = load(&counting_program(places, only.1, counts.as_raw_fd()))?;
        // The program runs for events on all processors, although the event is opened for one of
        // them.
        let processor = processors::online()?.first().copied().unwrap_or_default();
        let event = open(tracepoint, processor)?;
        // SAFETY: both descriptors are open; the kernel keeps its own reference to the program.
        let answer =
            unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { counts, names: tracepoint.names.clone(), _event: event })
    }

    /// Number of events so far by the name of the value. Values without a name, and values from 63
    /// on, are counted together as `other`. Values that did not occur are left out.
    ///
    /// # Errors
    /// Errors of bpf(2).
    pub fn counts(&self) -> io::Result<BTreeMap<String, u64>> {
        let mut counts = BTreeMap::new();
        for value in 0..VALUES {
            let count = look_up(&self.counts, value)?;
            let is_single = value < VALUES - 1;
            let name = self.names.get(&value).filter(|_| is_single).map_or("other", |name| name);
            if count > 0 {
                *counts.entry(name.to_owned()).or_default() += count;
            }
        }
        Ok(counts)
    }
}

fn open(tracepoint: &Tracepoint, processor: usize) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<EventAttributes>() as u32,
        config: tracepoint.id,
        ..EventAttributes::default()
    };
    let (every_process, no_group): (libc::pid_t, RawFd) = (-1, -1);
    // SAFETY: the pointer is to a live structure, whose `size` field is its size.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            processor as i32,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    new_descriptor(answer)
}

/// Takes the ownership of a descriptor that a system call has just returned.
fn new_descriptor(answer: c_long) -> io::Result<OwnedFd> {
    let descriptor = RawFd::try_from(answer).map_err(io::Error::other)?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// An instruction of BPF.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    /// The destination register in the low four bits, the source register in the high ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

impl Instruction {
    fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        Self { code, registers: destination | source << 4, offset, immediate }
    }
}

// Codes of instructions: the class, the operation, and the source of its operand.
const LOAD_WORD: u8 = 0x61;
const LOAD_IMMEDIATE_64: u8 = 0x18;
const STORE_WORD: u8 = 0x63;
const ATOMIC_ADD_64: u8 = 0xdb;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const JUMP_IF_NOT_EQUAL_32: u8 = 0x56;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_LESS: u8 = 0xa5;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The immediate value of a load is the descriptor of a map.
const PSEUDO_MAP_DESCRIPTOR: u8 = 1;

const MAP_LOOKUP_ELEMENT: i32 = 1;

/// Returns the program that counts. `places` are the offsets of the compared field and of the field
/// whose values are counted. Register 1 points to the event at the start.
fn counting_program(places: (i16, i16), only: u32, map: RawFd) -> [Instruction; 16] {
    let instruction = Instruction::new;
    [
        instruction(LOAD_WORD, 2, 1, places.0, 0),
        instruction(JUMP_IF_NOT_EQUAL_32, 2, 0, 12, only.cast_signed()),
        instruction(LOAD_WORD, 3, 1, places.1, 0),
        instruction(JUMP_IF_LESS, 3, 0, 1, VALUES.cast_signed()),
        instruction(MOVE_IMMEDIATE, 3, 0, 0, VALUES.cast_signed() - 1),
        // The key of the array is stored on the stack; register 10 is the frame pointer.
        instruction(STORE_WORD, 10, 3, -4, 0),
        instruction(MOVE, 2, 10, 0, 0),
        instruction(ADD_IMMEDIATE, 2, 0, 0, -4),
        instruction(LOAD_IMMEDIATE_64, 1, PSEUDO_MAP_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(CALL, 0, 0, 0, MAP_LOOKUP_ELEMENT),
        instruction(JUMP_IF_EQUAL, 0, 0, 2, 0),
        instruction(MOVE_IMMEDIATE, 1, 0, 0, 1),
        instruction(ATOMIC_ADD_64, 0, 1, 0, 0),
        instruction(MOVE_IMMEDIATE, 0, 0, 0, 0),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

/// Calls bpf(2). The kernel treats missing fields at the end of a command's structure as zero.
///
/// # Safety
/// Pointers in `attributes` must be to live memory of the sizes that the kernel expects.
unsafe fn bpf<T>(command: u32, attributes: &mut T) -> c_long {
    // SAFETY: the pointer is to a live structure of the given size; the caller ensures the rest.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) }
}

/// Makes an array of [`VALUES`] numbers of 64 bits.
fn make_array() -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    }
    let (command, array) = (0, 2);
    let mut attributes = Attributes { kind: array, key_bytes: 4, value_bytes: 8, entries: VALUES };
    // SAFETY: there are no pointers.
    new_descriptor(unsafe { bpf(command, &mut attributes) })
}

/// Loads a program for tracepoints.
fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        instructions: u32,
        program: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
    }
    let (command, for_tracepoints) = (5, 5);
    let mut attributes = Attributes {
        kind: for_tracepoints,
        instructions: program.len() as u32,
        program: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    // SAFETY: the kernel reads `instructions` instructions, and a string up to its NUL byte.
    new_descriptor(unsafe { bpf(command, &mut attributes) })
}

/// Returns one count of the array.
fn look_up(map: &OwnedFd, key: u32) -> io::Result<u64> {
    #[repr(C)]
    struct Attributes {
        map: u32,
        padding: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (command, mut value) = (1, 0_u64);
    let mut attributes = Attributes {
        map: map.as_raw_fd().cast_unsigned(),
        padding: 0,
        key: (&raw const key) as u64,
        value: (&raw mut value) as u64,
        flags: 0,
    };
    // SAFETY: the kernel reads a key of four bytes and writes a value of eight.
    let answer = unsafe { bpf(command, &mut attributes) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::Tracepoint;

    const FORMAT: &str = "name: fuse_request_send\nID: 1293\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t connection;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:uint64_t unique;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:enum fuse_opcode opcode;\toffset:24;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"opcode %u (%s)\", REC->opcode, __print_symbolic(REC->opcode, \
        {1, \"FUSE_LOOKUP\"}, {2, \"FUSE_FORGET\"})\n";

    #[test]
    fn fields_of_four_bytes_and_names_of_values_are_found() {
        let found = Tracepoint::parse(FORMAT).unwrap();
        assert_eq!(found.id, 1293);
        assert_eq!(found.offset("connection").unwrap(), 8);
        assert_eq!(found.offset("opcode").unwrap(), 24);
        assert!(found.offset("unique").unwrap_err().to_string().contains("`unique`"));
        assert_eq!(found.names.get(&2).map(String::as_str), Some("FUSE_FORGET"));
        assert_eq!(Tracepoint::parse("ID: x"), None);
    }
}
