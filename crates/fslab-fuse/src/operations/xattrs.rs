//! Requests for extended attributes.

use fslab_vfs::rules::set_id;
use fslab_vfs::{Errno, Result, XattrMode};

use crate::job::{Answer, Job};
use crate::protocol::flags::{InitFlags, SETXATTR_ACL_KILL_SGID};
use crate::protocol::reply::GetxattrOut;
use crate::protocol::request::{GetxattrIn, SetxattrIn, SetxattrInCompat};
use crate::server::Server;

/// The access ACL, which extends a file's mode bits.
const ACCESS_ACL: &str = "system.posix_acl_access";

impl Server {
    pub(super) fn getxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: GetxattrIn = job.incoming.body.take()?;
        let name = job.incoming.body.take_name()?;
        let value = self.file_system.getxattr(&job.request, job.ino(), name)?;
        put_value(job, wanted.size, &value)
    }

    pub(super) fn listxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: GetxattrIn = job.incoming.body.take()?;
        let names = self.file_system.listxattr(&job.request, job.ino())?;
        put_value(job, wanted.size, &names)
    }

    pub(super) fn setxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted = self.take_setxattr(job)?;
        let name = job.incoming.body.take_name()?;
        let value = job.incoming.body.take_bytes(wanted.size as usize)?;
        let mut mode = XattrMode::from_bits_retain(wanted.flags);
        let kill = wanted.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
        mode.set(XattrMode::KILL_SET_GROUP_ID, kill && name == ACCESS_ACL);
        let was_there = mode.contains(XattrMode::CREATE) && self.xattr_was_there(job, name);
        match self.file_system.setxattr(&job.request, job.ino(), name, value, mode) {
            // An earlier daemon has created the attribute.
            Err(error) if !was_there && job.has_done_before(&error, Errno::EXIST) => {}
            set => set?,
        }
        // The change may have allocated or freed a block.
        self.note_unseen_change(job.ino());
        Ok(Answer::Now)
    }

    /// Decodes a setxattr request. Kernels before 5.12 do not report whether the caller may keep
    /// the set-group-id bit. On these kernels, a caller without CAP_FSETID may not keep it, even as
    /// a member of the group.
    fn take_setxattr(&self, job: &mut Job<'_>) -> Result<SetxattrIn> {
        if self.granted.has(InitFlags::SETXATTR_EXT) {
            return Ok(job.incoming.body.take()?);
        }
        let SetxattrInCompat { size, flags } = job.incoming.body.take()?;
        let kill = !set_id::may_keep(&job.request);
        let setxattr_flags = if kill { SETXATTR_ACL_KILL_SGID } else { 0 };
        Ok(SetxattrIn { size, flags, setxattr_flags, padding: 0 })
    }

    pub(super) fn removexattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = job.incoming.body.take_name()?;
        let was_there = self.xattr_was_there(job, name);
        match self.file_system.removexattr(&job.request, job.ino(), name) {
            // An earlier daemon has removed the attribute.
            Err(error) if was_there && job.has_done_before(&error, Errno::NODATA) => {}
            removed => removed?,
        }
        self.note_unseen_change(job.ino());
        Ok(Answer::Now)
    }
}

/// Replies with a value or a list of names, or only with its size if `size` is 0.
fn put_value(job: &mut Job<'_>, size: u32, value: &[u8]) -> Result<Answer> {
    if size == 0 {
        let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        job.output.put(&GetxattrOut { size, padding: 0 });
    } else if value.len() > size as usize {
        return Err(Errno::RANGE.into());
    } else {
        job.output.put_bytes(value);
    }
    Ok(Answer::Now)
}
