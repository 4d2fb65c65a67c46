//! Turns an operation and its outcome into a record of a trace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_trace::record_flag as flag;
use fslab_trace::{DataMode, Record};
use fslab_vfs::{
    Attr, FileAttrForm, Handle, Ino, Name, Request, SeekTo, SetAttr, SetTime, Timestamp,
};

use super::super::call::{Answer, Call, Outcome};

/// The record of an operation, but for its times and thread.
pub(super) fn record(
    request: Option<&Request>,
    call: &Call<'_>,
    outcome: &Outcome<'_>,
    data: DataMode,
) -> Record {
    let mut record = Record::new(call.operation());
    if let Some(request) = request {
        record.time_ns = Some(nanoseconds(request.now));
        record.pid = Some(request.pid);
        record.uid = Some(request.credentials.uid);
        record.gid = Some(request.credentials.gid);
    }
    add_call(&mut record, request, call, data);
    match outcome {
        Ok(answer) => add_answer(&mut record, answer),
        Err(errno) => record.errno = errno.raw_os_error().cast_unsigned(),
    }
    record
}

/// Times that 64 bits can't hold (after 2262) become the last that they can.
fn nanoseconds(time: Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanoseconds.into())
}

fn add_call(record: &mut Record, request: Option<&Request>, call: &Call<'_>, data: DataMode) {
    let umask = request.map(|request| request.umask);
    match *call {
        Call::Lookup { parent, name }
        | Call::Unlink { parent, name }
        | Call::Rmdir { parent, name } => add_name(record, parent, name),
        Call::Mknod { parent, name, mode, device } => {
            add_name(record, parent, name);
            (record.mode, record.umask, record.device) = (Some(mode), umask, Some(device));
        }
        Call::Mkdir { parent, name, mode } => {
            add_name(record, parent, name);
            (record.mode, record.umask) = (Some(mode), umask);
        }
        Call::Symlink { parent, name, target } => {
            add_name(record, parent, name);
            record.text = text(target);
        }
        Call::Rename { parent, name, new_parent, new_name, mode } => {
            add_name(record, parent, name);
            add_new_name(record, new_parent, new_name);
            record.flags = Some(mode.bits());
        }
        Call::Link { ino, new_parent, new_name } => {
            record.inode = Some(ino.0);
            add_new_name(record, new_parent, new_name);
        }
        Call::Create { parent, name, mode, flags } => {
            add_name(record, parent, name);
            (record.mode, record.umask, record.flags) = (Some(mode), umask, Some(flags.bits()));
        }
        Call::Tmpfile { parent, mode, flags } => {
            record.parent = Some(parent.0);
            (record.mode, record.umask, record.flags) = (Some(mode), umask, Some(flags.bits()));
        }
        _ => add_call_on_inode(record, call, data),
    }
}

fn add_call_on_inode(record: &mut Record, call: &Call<'_>, data: DataMode) {
    match *call {
        Call::Forget { ino, lookups } => {
            (record.inode, record.size) = (Some(ino.0), Some(lookups));
        }
        Call::Getattr { ino, handle } => {
            (record.inode, record.handle) = (Some(ino.0), handle.map(|handle| handle.0));
        }
        Call::Setattr { ino, handle, changes } => {
            (record.inode, record.handle) = (Some(ino.0), handle.map(|handle| handle.0));
            add_changes(record, changes);
        }
        Call::Readlink { ino }
        | Call::Opendir { ino }
        | Call::Syncfs { ino }
        | Call::Statfs { ino }
        | Call::Listxattr { ino } => record.inode = Some(ino.0),
        Call::Open { ino, mode } => {
            (record.inode, record.flags) = (Some(ino.0), Some(mode.bits()));
        }
        Call::Getxattr { ino, name } | Call::Removexattr { ino, name } => {
            (record.inode, record.text) = (Some(ino.0), text(name));
        }
        Call::Setxattr { ino, name, value, mode } => {
            (record.inode, record.text) = (Some(ino.0), text(name));
            record.flags = Some(mode.bits());
            add_data(record, value, data);
        }
        Call::FileattrGet { ino, form } => {
            record.inode = Some(ino.0);
            record.flags = Some(bit(form == FileAttrForm::Extended, flag::EXTENDED));
        }
        Call::FileattrSet { ino, attr } => {
            record.inode = Some(ino.0);
            record.flags = Some(bit(attr.form() == FileAttrForm::Extended, flag::EXTENDED));
            add_data(record, &attr.to_bytes(), DataMode::Full);
        }
        _ => add_call_on_file(record, call, data),
    }
}

fn add_call_on_file(record: &mut Record, call: &Call<'_>, data: DataMode) {
    match *call {
        Call::Read { ino, handle, offset, size } => {
            add_range(record, (ino, handle, offset), size as u64);
        }
        Call::Write { ino, handle, offset, data: bytes, options } => {
            add_file(record, ino, handle);
            record.offset = Some(offset);
            let append = bit(options.append, flag::APPEND);
            record.flags = Some(append | bit(options.kill_set_id, flag::KILL_SET_ID));
            add_data(record, bytes, data);
        }
        Call::Flush { ino, handle }
        | Call::Release { ino, handle }
        | Call::Releasedir { ino, handle } => add_file(record, ino, handle),
        Call::Fsync { ino, handle, data_only } | Call::Fsyncdir { ino, handle, data_only } => {
            add_file(record, ino, handle);
            record.flags = Some(bit(data_only, flag::DATA_ONLY));
        }
        Call::Readdir { ino, handle, offset } => {
            add_file(record, ino, handle);
            record.offset = Some(offset);
        }
        Call::Fallocate { ino, handle, offset, length, mode } => {
            add_range(record, (ino, handle, offset), length);
            record.flags = Some(mode.bits());
        }
        Call::Lseek { ino, handle, offset, to } => {
            add_file(record, ino, handle);
            record.offset = Some(offset);
            record.flags = Some(bit(to == SeekTo::Hole, flag::HOLE));
        }
        Call::CopyFileRange { source: (ino, handle, offset), target, length } => {
            add_range(record, target, length);
            record.from_inode = Some(ino.0);
            record.from_handle = Some(handle.0);
            record.from_offset = Some(offset);
        }
        // Every other call is one by name or on an inode.
        _ => {}
    }
}

fn add_name(record: &mut Record, parent: Ino, name: Name<'_>) {
    (record.parent, record.name) = (Some(parent.0), Some(name.as_bytes().to_vec()));
}

fn add_new_name(record: &mut Record, parent: Ino, name: Name<'_>) {
    (record.new_parent, record.new_name) = (Some(parent.0), Some(name.as_bytes().to_vec()));
}

fn add_file(record: &mut Record, ino: Ino, handle: Handle) {
    (record.inode, record.handle) = (Some(ino.0), Some(handle.0));
}

fn add_range(record: &mut Record, (ino, handle, offset): (Ino, Handle, u64), length: u64) {
    add_file(record, ino, handle);
    (record.offset, record.size) = (Some(offset), Some(length));
}

fn add_data(record: &mut Record, bytes: &[u8], data: DataMode) {
    record.size = Some(bytes.len() as u64);
    if data != DataMode::None {
        record.checksum = Some(crc32c::crc32c(bytes).into());
    }
    if data == DataMode::Full {
        record.data = Some(bytes.to_vec());
    }
}

fn add_changes(record: &mut Record, changes: &SetAttr) {
    record.mode = changes.permissions.map(|permissions| permissions.bits());
    (record.owner, record.group, record.size) = (changes.uid, changes.gid, changes.size);
    let (accessed, accessed_now) = time(changes.accessed, flag::ACCESSED_NOW);
    let (modified, modified_now) = time(changes.modified, flag::MODIFIED_NOW);
    (record.accessed_s, record.accessed_ns) = parts(accessed);
    (record.modified_s, record.modified_ns) = parts(modified);
    record.flags = Some(accessed_now | modified_now | bit(changes.kill_set_id, flag::KILL_SET_ID));
}

fn time(set: Option<SetTime>, now: u32) -> (Option<Timestamp>, u32) {
    match set {
        None => (None, 0),
        Some(SetTime::Now) => (None, now),
        Some(SetTime::To(time)) => (Some(time), 0),
    }
}

fn parts(time: Option<Timestamp>) -> (Option<i64>, Option<u32>) {
    (time.map(|time| time.seconds), time.map(|time| time.nanoseconds))
}

fn bit(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

fn text(text: &OsStr) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

fn add_answer(record: &mut Record, answer: &Answer<'_>) {
    match *answer {
        Answer::Done => {}
        Answer::Attr(attr) => add_attr(record, attr),
        Answer::Entry(entry) => add_attr(record, &entry.attr),
        Answer::Opened(opened) => record.result_handle = Some(opened.handle.0),
        Answer::Created(entry, opened) => {
            add_attr(record, &entry.attr);
            record.result_handle = Some(opened.handle.0);
        }
        Answer::Directory(handle) => record.result_handle = Some(handle.0),
        Answer::Moved(count) | Answer::Number(count) => record.result = Some(count),
        Answer::Target(target) => record.text = text(target),
    }
}

fn add_attr(record: &mut Record, attr: &Attr) {
    record.result_inode = Some(attr.ino.0);
    record.result_mode = Some(attr.kind.mode_bits() | attr.permissions.bits());
    record.result_size = Some(attr.size);
}
