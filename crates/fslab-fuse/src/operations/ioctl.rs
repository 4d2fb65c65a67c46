//! The ioctls of lsattr(1) and chattr(1). Before the kernel sends such a request, it has opened the
//! file and checked the caller's rights. All other ioctls return `ENOTTY`.

use fslab_vfs::{Errno, FileAttr, FileAttrForm, Result};

use crate::job::{Answer, Job};
use crate::protocol::reply::IoctlOut;
use crate::protocol::request::IoctlIn;
use crate::server::Server;

/// `FS_IOC_GETFLAGS`
const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
const SET_EXTENDED: u32 = 0x401c_5820;

/// The header of the reply to a successful ioctl. It requests no further buffers.
const DONE: IoctlOut = IoctlOut { result: 0, flags: 0, in_iovs: 0, out_iovs: 0 };

impl Server {
    pub(super) fn ioctl(&self, job: &mut Job<'_>) -> Result<Answer> {
        let IoctlIn { cmd, in_size, out_size, .. } = job.incoming.body.take()?;
        match cmd {
            GET_FLAGS => self.fileattr_get(job, FileAttrForm::Flags, out_size),
            GET_EXTENDED => self.fileattr_get(job, FileAttrForm::Extended, out_size),
            SET_FLAGS => self.fileattr_set(job, FileAttrForm::Flags, in_size),
            SET_EXTENDED => self.fileattr_set(job, FileAttrForm::Extended, in_size),
            _ => Err(Errno::NOTTY.into()),
        }
    }

    fn fileattr_get(&self, job: &mut Job<'_>, form: FileAttrForm, room: u32) -> Result<Answer> {
        let attr = self.file_system.fileattr_get(&job.request, job.ino(), form)?;
        let bytes = attr.to_bytes();
        if bytes.len() > room as usize {
            return Err(Errno::INVAL.into());
        }
        job.output.put(&DONE);
        job.output.put_bytes(&bytes);
        Ok(Answer::Now)
    }

    fn fileattr_set(&self, job: &mut Job<'_>, form: FileAttrForm, size: u32) -> Result<Answer> {
        let bytes = job.incoming.body.take_bytes(size as usize)?;
        let attr = FileAttr::from_bytes(bytes).filter(|attr| attr.form() == form);
        let attr = attr.ok_or(Errno::INVAL)?;
        self.file_system.fileattr_set(&job.request, job.ino(), &attr)?;
        // The kernel does not know that this updates the change time.
        self.expire_attributes(job.ino());
        job.output.put(&DONE);
        Ok(Answer::Now)
    }
}
