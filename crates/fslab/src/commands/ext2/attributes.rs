//! Copies the attributes of files into and out of images.

use std::ffi::OsString;

use anyhow::{Context, Result};
use fslab_vfs::{FileSystem, Ino, Permissions, Request, SetAttr, SetTime, Timestamp, XattrMode};

/// The attributes that a copied file keeps.
pub(super) struct Attributes {
    /// User and group, if they are kept. Only root may change the owner of a file.
    pub owner: Option<(u32, u32)>,
    /// `None` for symbolic links.
    pub permissions: Option<Permissions>,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub extended: Vec<(OsString, Vec<u8>)>,
}

impl Attributes {
    /// Sets these attributes on a file. The owner is set first: a later change of owner would clear
    /// the set-id bits.
    pub fn give_to(&self, target: &dyn FileSystem, request: &Request, ino: Ino) -> Result<()> {
        if let Some((uid, gid)) = self.owner {
            let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            target.setattr(request, ino, None, &owner)?;
        }
        for (name, value) in &self.extended {
            let answer = target.setxattr(request, ino, name, value, XattrMode::empty());
            answer.with_context(|| format!("attribute {}", name.display()))?;
        }
        let changes = SetAttr {
            permissions: self.permissions,
            accessed: Some(SetTime::To(self.accessed)),
            modified: Some(SetTime::To(self.modified)),
            ..SetAttr::default()
        };
        target.setattr(request, ino, None, &changes)?;
        Ok(())
    }
}
