//! Inode flags of the lower file system.

use std::os::fd::OwnedFd;

use fslab_sys::fsxattr;
use rustix::fs::IFlags;

use crate::error::Result;
use crate::file_attr::{FileAttr, FileAttrForm};

pub(super) fn get(file: &OwnedFd, form: FileAttrForm) -> Result<FileAttr> {
    Ok(match form {
        FileAttrForm::Flags => FileAttr::Flags(rustix::fs::ioctl_getflags(file)?.bits()),
        FileAttrForm::Extended => FileAttr::Extended(fsxattr::get(file)?),
    })
}

pub(super) fn set(file: &OwnedFd, attr: &FileAttr) -> Result<()> {
    match *attr {
        FileAttr::Flags(flags) => {
            Ok(rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(flags))?)
        }
        FileAttr::Extended(attr) => Ok(fsxattr::set(file, attr)?),
    }
}
