//! Extended attributes of inodes, stored in the inode if there is room, else in a block.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fslab_vfs::rules::acl;
use fslab_vfs::{Errno, XattrMode};

use crate::acl_format;
use crate::cache::Role;
use crate::error::{Error, Place, Result};
use crate::flaw::Flaw;
use crate::inode::Inode;
use crate::types::{BlockNo, InodeNo};
use crate::volume::Volume;
use crate::xattr_region::{Attribute, Region, check_block, reference_count, set_reference_count};

/// Name prefixes and their codes in `e_name_index`.
const PREFIXES: [(u8, &str); 6] = [
    (1, "user."),
    (2, acl::ACCESS),
    (3, acl::DEFAULT),
    (4, "trusted."),
    (6, "security."),
    (7, "system."),
];

/// A name as stored: the code of its prefix and the rest.
struct StoredName<'a> {
    index: u8,
    rest: &'a [u8],
}

impl<'a> StoredName<'a> {
    fn of(name: &'a OsStr) -> Result<Self> {
        let bytes = name.as_bytes();
        let found = PREFIXES.iter().find_map(|(index, prefix)| {
            let rest = bytes.strip_prefix(prefix.as_bytes())?;
            // The two names without a final dot are complete; they allow no suffix.
            (prefix.ends_with('.') || rest.is_empty()).then_some(Self { index: *index, rest })
        });
        Ok(found.ok_or(Errno::OPNOTSUPP)?)
    }

    fn is(&self, attribute: &Attribute) -> bool {
        attribute.index == self.index && attribute.name == self.rest
    }

    fn is_acl(&self) -> bool {
        matches!(self.index, 2 | 3)
    }
}

struct Attributes {
    inode: Vec<Attribute>,
    block: Vec<Attribute>,
}

impl Attributes {
    fn find(&self, name: &StoredName<'_>) -> Option<&Attribute> {
        self.inode.iter().chain(&self.block).find(|attribute| name.is(attribute))
    }

    fn remove(&mut self, name: &StoredName<'_>) {
        self.inode.retain(|attribute| !name.is(attribute));
        self.block.retain(|attribute| !name.is(attribute));
    }
}

impl Volume {
    pub(crate) fn xattr(&self, inode: &Inode, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let name = StoredName::of(name)?;
        let attributes = self.attributes(inode)?;
        let Some(found) = attributes.find(&name) else { return Ok(None) };
        match name.is_acl() {
            false => Ok(Some(found.value.clone())),
            true => acl_format::from_disk(&found.value)
                .map(Some)
                .ok_or_else(|| Error::damaged(Place::Inode(inode.no), Flaw::BadAcl)),
        }
    }

    /// Returns the names of all attributes, each terminated by a NUL byte.
    pub(crate) fn xattr_names(&self, inode: &Inode) -> Result<Vec<u8>> {
        let attributes = self.attributes(inode)?;
        let mut names = Vec::new();
        for attribute in attributes.inode.iter().chain(&attributes.block) {
            let known = PREFIXES.iter().find(|(index, _)| *index == attribute.index);
            if let Some((_, prefix)) = known {
                names.extend_from_slice(prefix.as_bytes());
                names.extend_from_slice(&attribute.name);
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Sets an attribute. `mode` may require that the attribute exists, or that it does not.
    pub(crate) fn set_xattr(
        &mut self,
        inode: &mut Inode,
        name: &OsStr,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = StoredName::of(name)?;
        let mut attributes = self.attributes(inode)?;
        match attributes.find(&name) {
            Some(_) if mode.contains(XattrMode::CREATE) => return Err(Errno::EXIST.into()),
            None if mode.contains(XattrMode::REPLACE) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let value = match name.is_acl() {
            true => acl_format::to_disk(value).ok_or(Errno::INVAL)?,
            false => value.to_vec(),
        };
        let was_in_block = attributes.block.iter().any(|attribute| name.is(attribute));
        attributes.remove(&name);
        let new = Attribute { index: name.index, name: name.rest.to_vec(), value };
        let is_in_block = self.place_attribute(inode.no, &mut attributes, new, was_in_block)?;
        // If the attribute moves from the block to the inode, a new block is used. Overwriting the
        // old block before the inode is written could lose the attribute.
        self.store_attributes(inode, attributes, was_in_block && !is_in_block)
    }

    /// Removes an attribute; returns whether it existed.
    pub(crate) fn remove_xattr(&mut self, inode: &mut Inode, name: &OsStr) -> Result<bool> {
        let name = StoredName::of(name)?;
        let mut attributes = self.attributes(inode)?;
        if attributes.find(&name).is_none() {
            return Ok(false);
        }
        attributes.remove(&name);
        self.store_attributes(inode, attributes, false)?;
        Ok(true)
    }

    /// Whether an inode may have attributes; does not parse them.
    pub(crate) fn may_have_xattrs(&self, inode: &Inode) -> Result<bool> {
        let in_inode = self.inode_bytes(inode.no, |bytes| {
            Inode::xattr_region(bytes).first_chunk().is_some_and(|magic| *magic != [0; 4])
        })?;
        Ok(in_inode || inode.xattr_block.is_some())
    }

    /// Adds a new attribute to the inode or, if it does not fit there, to the block. If it was in
    /// the block, the block is tried first. Returns whether the attribute is now in the block.
    fn place_attribute(
        &self,
        no: InodeNo,
        attributes: &mut Attributes,
        new: Attribute,
        was_in_block: bool,
    ) -> Result<bool> {
        let in_inode = self.inode_bytes(no, |bytes| Inode::xattr_region(bytes).len())?;
        let regions = [(Region::Inode, in_inode), (Region::Block, self.block_size().bytes())];
        let order = if was_in_block { [1, 0] } else { [0, 1] };
        for (region, length) in order.map(|at| regions[at]) {
            let is_block = matches!(region, Region::Block);
            let list = if is_block { &mut attributes.block } else { &mut attributes.inode };
            list.push(new.clone());
            if region.fits(length, list) {
                return Ok(is_block);
            }
            list.pop();
        }
        Err(Errno::NOSPC.into())
    }

    fn attributes(&self, inode: &Inode) -> Result<Attributes> {
        let damaged = |what| Error::damaged(Place::Inode(inode.no), what);
        let parsed =
            self.inode_bytes(inode.no, |bytes| Region::Inode.parse(Inode::xattr_region(bytes)))?;
        let block = match inode.xattr_block {
            None => Vec::new(),
            Some(block) => {
                let bytes = self.cache.read(self.checked_xattr_block(inode.no, block)?)?;
                Region::Block.parse(&bytes).map_err(damaged)?
            }
        };
        // A region that is too small for a first entry is treated as empty.
        Ok(Attributes { inode: parsed.map_err(damaged)?, block })
    }

    fn checked_xattr_block(&self, no: InodeNo, block: BlockNo) -> Result<BlockNo> {
        let place = Place::Block(no, block);
        let is_data = self.space.is_data(block);
        is_data.then_some(block).ok_or(Error::damaged(place, Flaw::XattrOutside))
    }

    /// Stores attributes that have been checked to fit. The block is stored first, because only
    /// this can fail. If an attribute `moved` from the block to the inode, the remaining ones are
    /// written to a new block. The new block becomes valid together with the inode.
    fn store_attributes(
        &mut self,
        inode: &mut Inode,
        mut attributes: Attributes,
        moved: bool,
    ) -> Result<()> {
        if attributes.block.is_empty() {
            self.drop_xattr_block(inode)?;
        } else {
            let block = self.own_xattr_block(inode, moved)?;
            let region = &mut attributes.block;
            self.cache.modify(block, Role::Map, |bytes| Region::Block.write(bytes, region))?;
        }
        self.change_inode(inode.no, |bytes| {
            let start = bytes.len() - Inode::xattr_region(bytes).len();
            // A region that is too small for a first entry remains empty.
            if bytes.len() - start >= 4 {
                Region::Inode.write(&mut bytes[start..], &mut attributes.inode);
            }
        })?;
        self.store_inode(inode)
    }

    /// Returns an attribute block that only this inode uses; allocates one if necessary or if `new`
    /// is set.
    fn own_xattr_block(&mut self, inode: &mut Inode, new: bool) -> Result<BlockNo> {
        if let Some(block) = inode.xattr_block.filter(|_| !new) {
            let block = self.checked_xattr_block(inode.no, block)?;
            if reference_count(&self.cache.read(block)?) <= 1 {
                return Ok(block);
            }
        }
        self.reserve(1, true)?;
        let block = self.take_lone_block(inode.no)?;
        self.drop_xattr_block(inode)?;
        inode.xattr_block = Some(block);
        inode.sectors = inode.sectors.checked_add(self.block_sectors()).ok_or(Errno::FBIG)?;
        Ok(block)
    }

    /// Detaches an inode's attribute block; frees it if no other inode shares it.
    pub(crate) fn drop_xattr_block(&mut self, inode: &mut Inode) -> Result<()> {
        let Some(block) = inode.xattr_block else { return Ok(()) };
        match self.release_xattr_block(inode.no, block) {
            // The block may belong to another file. Therefore it is not changed, and only the
            // reference to it is removed.
            Err(error @ Error::Damaged(_)) => {
                let what = format!(
                    "removed the reference of inode {} to a damaged attribute block",
                    inode.no
                );
                self.trouble.log(&what, &error);
            }
            answer => answer?,
        }
        inode.xattr_block = None;
        inode.sectors = inode.sectors.saturating_sub(self.block_sectors());
        self.store_inode(inode)
    }

    fn release_xattr_block(&mut self, no: InodeNo, block: BlockNo) -> Result<()> {
        let block = self.checked_xattr_block(no, block)?;
        let bytes = self.cache.read(block)?;
        check_block(&bytes).map_err(|what| Error::damaged(Place::Block(no, block), what))?;
        let count = reference_count(&bytes);
        if count > 1 {
            return self
                .cache
                .modify(block, Role::Map, |bytes| set_reference_count(bytes, count - 1));
        }
        self.space.free_block(&mut self.cache, no, block)
    }
}
