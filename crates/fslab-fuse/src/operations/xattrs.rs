//! Requests about extended attributes.

use fslab_vfs::{Errno, Result, XattrMode};

use super::{Answer, Job};
use crate::protocol::reply::GetxattrOut;
use crate::protocol::request::{GetxattrIn, SetxattrInCompat};
use crate::server::Server;

impl Server {
    pub(super) fn getxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: GetxattrIn = job.incoming.take()?;
        let name = job.incoming.take_name()?;
        let value = self.file_system.getxattr(&job.request, job.ino(), name)?;
        put_value(job, wanted.size, &value)
    }

    pub(super) fn listxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: GetxattrIn = job.incoming.take()?;
        let names = self.file_system.listxattr(&job.request, job.ino())?;
        put_value(job, wanted.size, &names)
    }

    pub(super) fn setxattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let wanted: SetxattrInCompat = job.incoming.take()?;
        let name = job.incoming.take_name()?;
        let value = job.incoming.take_bytes(wanted.size as usize)?;
        let mode = XattrMode::from_bits_retain(wanted.flags);
        self.file_system.setxattr(&job.request, job.ino(), name, value, mode)?;
        Ok(Answer::Now)
    }

    pub(super) fn removexattr(&self, job: &mut Job<'_>) -> Result<Answer> {
        let name = job.incoming.take_name()?;
        self.file_system.removexattr(&job.request, job.ino(), name)?;
        Ok(Answer::Now)
    }
}

/// Answers a value, or its size where only that was asked.
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
