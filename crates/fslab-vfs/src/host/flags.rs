//! Inode flags of the lower file system.

use std::os::fd::OwnedFd;

use fslab_sys::fsxattr::{self, Fsxattr};
use rustix::fs::IFlags;

use crate::error::Result;
use crate::file_attr::{ExtendedAttr, FileAttr, FileAttrForm};

pub(super) fn get(file: &OwnedFd, form: FileAttrForm) -> Result<FileAttr> {
    Ok(match form {
        FileAttrForm::Flags => FileAttr::Flags(rustix::fs::ioctl_getflags(file)?.bits()),
        FileAttrForm::Extended => {
            let Fsxattr { xflags, extent_size, extents, project, cow_extent_size, .. } =
                fsxattr::get(file)?;
            let attr = ExtendedAttr { xflags, extent_size, extents, project, cow_extent_size };
            FileAttr::Extended(attr)
        }
    })
}

pub(super) fn set(file: &OwnedFd, attr: &FileAttr) -> Result<()> {
    match *attr {
        FileAttr::Flags(flags) => {
            rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(flags))?;
        }
        FileAttr::Extended(attr) => {
            let ExtendedAttr { xflags, extent_size, extents, project, cow_extent_size } = attr;
            let padding = [0; 8];
            let attr = Fsxattr { xflags, extent_size, extents, project, cow_extent_size, padding };
            fsxattr::set(file, attr)?;
        }
    }
    Ok(())
}
