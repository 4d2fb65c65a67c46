//! Converts an operation and its outcome into a record of a trace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_trace::record_flag as flag;
use fslab_trace::{DataMode, Record};
use fslab_vfs::{
    Answer, Attr, Call, FileAttrForm, Handle, Named, Outcome, Request, SeekTo, SetAttr, SetTime,
    Timestamp,
};

/// Makes the record of an operation, without its times and thread.
pub(super) fn record(
    request: Option<&Request>,
    call: &Call<'_>,
    outcome: &Outcome<'_>,
    data: DataMode,
) -> Record {
    let mut record = Record::new(call.operation());
    if let Some(request) = request {
        record.time_ns = Some(request.now.to_ns());
        record.pid = Some(request.pid);
        record.uid = Some(request.credentials.uid);
        record.gid = Some(request.credentials.gid);
    }
    add_named(&mut record, call);
    add_call(&mut record, request, call, data);
    match outcome {
        Ok(answer) => add_answer(&mut record, answer),
        Err(errno) => record.errno = errno.raw_os_error().cast_unsigned(),
    }
    record
}

fn add_named(record: &mut Record, call: &Call<'_>) {
    let [first, second] = call.named();
    match first {
        Some(Named::Inode(ino)) => record.inode = Some(ino.0),
        Some(Named::Entry(parent, name)) => {
            (record.parent, record.name) = (Some(parent.0), text(name));
        }
        None => {}
    }
    if let Some(Named::Entry(parent, name)) = second {
        (record.new_parent, record.new_name) = (Some(parent.0), text(name));
    }
}

fn add_call(record: &mut Record, request: Option<&Request>, call: &Call<'_>, data: DataMode) {
    let umask = request.map(|request| request.umask);
    match *call {
        Call::Lookup { .. }
        | Call::Unlink { .. }
        | Call::Rmdir { .. }
        | Call::Link { .. }
        | Call::Readlink { .. }
        | Call::Opendir { .. }
        | Call::Syncfs { .. }
        | Call::Statfs { .. }
        | Call::Listxattr { .. } => {}
        Call::Mknod { mode, device, .. } => {
            (record.mode, record.umask, record.device) = (Some(mode), umask, Some(device));
        }
        Call::Mkdir { mode, .. } => (record.mode, record.umask) = (Some(mode), umask),
        Call::Symlink { target, .. } => record.text = text(target),
        Call::Rename { mode, .. } => record.flags = Some(mode.bits()),
        Call::Create { mode, flags, .. } => {
            (record.mode, record.umask, record.flags) = (Some(mode), umask, Some(flags.bits()));
        }
        Call::Tmpfile { parent, mode, flags } => {
            (record.inode, record.parent) = (None, Some(parent.0));
            (record.mode, record.umask, record.flags) = (Some(mode), umask, Some(flags.bits()));
        }
        Call::Forget { lookups, .. } => record.size = Some(lookups),
        Call::Getattr { handle, .. } => record.handle = handle.map(|handle| handle.0),
        Call::Setattr { handle, changes, .. } => {
            record.handle = handle.map(|handle| handle.0);
            add_changes(record, changes);
        }
        Call::Open { mode, .. } => record.flags = Some(mode.bits()),
        Call::Getxattr { name, .. } | Call::Removexattr { name, .. } => record.text = text(name),
        Call::Setxattr { name, value, mode, .. } => {
            (record.text, record.flags) = (text(name), Some(mode.bits()));
            add_data(record, value, data);
        }
        Call::FileattrGet { form, .. } => record.flags = Some(extended(form)),
        Call::FileattrSet { attr, .. } => {
            record.flags = Some(extended(attr.form()));
            add_data(record, &attr.to_bytes(), DataMode::Full);
        }
        Call::Flush { handle, .. }
        | Call::Release { handle, .. }
        | Call::Releasedir { handle, .. } => record.handle = Some(handle.0),
        Call::Fsync { handle, data_only, .. } | Call::Fsyncdir { handle, data_only, .. } => {
            (record.handle, record.flags) = (Some(handle.0), Some(bit(data_only, flag::DATA_ONLY)));
        }
        Call::Readdir { handle, offset, .. } => add_place(record, handle, offset),
        Call::Read { handle, offset, size, .. } => add_range(record, handle, offset, size as u64),
        Call::Write { handle, offset, data: bytes, options, .. } => {
            add_place(record, handle, offset);
            add_data(record, bytes, data);
            let append = bit(options.append, flag::APPEND);
            record.flags = Some(append | bit(options.kill_set_id, flag::KILL_SET_ID));
        }
        Call::Fallocate { handle, offset, length, mode, .. } => {
            add_range(record, handle, offset, length);
            record.flags = Some(mode.bits());
        }
        Call::Lseek { handle, offset, to, .. } => {
            add_place(record, handle, offset);
            record.flags = Some(bit(to == SeekTo::Hole, flag::HOLE));
        }
        Call::CopyFileRange { source: (source, from, at), target, length } => {
            record.inode = Some(target.0.0);
            add_range(record, target.1, target.2, length);
            record.from_inode = Some(source.0);
            (record.from_handle, record.from_offset) = (Some(from.0), Some(at));
        }
    }
}

fn add_place(record: &mut Record, handle: Handle, offset: u64) {
    (record.handle, record.offset) = (Some(handle.0), Some(offset));
}

fn add_range(record: &mut Record, handle: Handle, offset: u64, length: u64) {
    add_place(record, handle, offset);
    record.size = Some(length);
}

fn extended(form: FileAttrForm) -> u32 {
    bit(form == FileAttrForm::Extended, flag::EXTENDED)
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
