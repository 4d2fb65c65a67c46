//! The home of a tier: a directory with its settings, its catalogue and its policy.
//!
//! ```text
//! HOME/tier.toml         the settings of the tier
//! HOME/catalogue.redb    the catalogue, an index of the archives that can be rebuilt
//! HOME/policy.toml       rules for archiving and releasing files; written by the owner
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fslab_vfs::{Errno, FileSystem};
use serde::{Deserialize, Serialize};

use crate::archive::unavailable::ReconnectingArchive;
use crate::archive::{
    self, Archive, ArchiveAddress, Key, NewArchive, Purpose, key_of, settings_text,
};
pub use crate::archive::{ArchiveEntry, ArchiveUsage};
use crate::atomic_write::write_durably;
use crate::catalogue::Catalogue;
use crate::cleanup::{Cleanup, absent};
use crate::closed_root::{self, ClosedRoot, Treatment};
use crate::deny_list::{DenyList, Programs};
use crate::engine::{BUNDLED_BYTES_MAX, Settings, Tier, check_mark, claim};
use crate::environment::Environment;
use crate::error::{Error, Result, line_of};
use crate::id::Id;
use crate::private;
use crate::stored::format::COPIES_MAX;
use crate::stored::{Marks, TreeMark};

mod surviving_archives;
mod writer_identity;

pub use surviving_archives::SurvivingArchives;
use writer_identity::Origin;
pub use writer_identity::writer_of;

const SETTINGS: &str = "tier.toml";
const CATALOGUE: &str = "catalogue.redb";
const POLICY: &str = "policy.toml";
const VERSION: u32 = 1;
const ZSTD_LEVEL_MAX: i32 = 19;

/// The settings of a tier, in `tier.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierDescription {
    /// The version of this file format.
    pub version: u32,
    /// The identity of the tier.
    pub tier: Id,
    /// Number of archives that must have a copy of a file before its bytes may be released.
    pub copies: usize,
    /// The zstd level for archived files, 0 for no compression.
    #[serde(default = "usual_level")]
    pub zstd_level: i32,
    /// Files of at most this many bytes are bundled; 0 bundles no files.
    #[serde(default = "usual_bundled")]
    pub bundled_bytes: u64,
    /// Whether a new version of a large file is archived without the blocks that archives already
    /// contain.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub deltas: bool,
    /// How long replaced and removed versions are kept, in seconds.
    #[serde(default = "usual_keep")]
    pub keep_seconds: u64,
    /// Whether programs can access the tree while it is not mounted.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub umount: Umount,
    /// Whether released files show poison in the lower directory.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub poison: Poison,
    /// Programs that may not recall, in the syntax of [`DenyList::new`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The archives of the tier, in the order in which they receive copies.
    #[serde(default, rename = "archive")]
    pub archives: Vec<ArchiveEntry>,
}

impl TierDescription {
    /// Returns a new tier with the default settings. [`Home::init`] sets the identities of the tier
    /// and its archives. The key, if any, encrypts all archives.
    #[must_use]
    pub fn usual(archives: Vec<ArchiveAddress>, key: Option<PathBuf>) -> Self {
        let unmade = |address| ArchiveEntry {
            id: Id::default(),
            address,
            key: key.clone(),
            usage: ArchiveUsage::Active,
        };
        Self {
            version: VERSION,
            tier: Id::default(),
            copies: 1,
            zstd_level: usual_level(),
            bundled_bytes: usual_bundled(),
            deltas: false,
            keep_seconds: usual_keep(),
            umount: Umount::default(),
            poison: Poison::default(),
            deny: Vec::new(),
            archives: archives.into_iter().map(unmade).collect(),
        }
    }

    /// Returns the archives that are opened.
    pub fn attached_archives(&self) -> impl Iterator<Item = &ArchiveEntry> {
        self.archives.iter().filter(|archive| archive.usage != ArchiveUsage::Detached)
    }

    /// Returns the number of archives that accept copies.
    fn active_archives(&self) -> usize {
        self.archives.iter().filter(|archive| archive.usage.is_active()).count()
    }

    /// Returns the name of a setting with an invalid value, and a message with a remedy.
    fn wrong(&self) -> Option<(&'static str, String)> {
        let archives = self.active_archives();
        let (key, what) = if self.version != VERSION {
            ("version", format!("version {} is not supported by this fslab", self.version))
        } else if self.copies == 0 {
            ("copies", "copies must be at least 1; 0 would lose released bytes".to_owned())
        } else if self.copies > archives {
            let what = format!(
                "copies is {}, but only {archives} [[archive]] tables accept copies: reduce \
                 copies, or first attach archives with `fslab tier attach`",
                self.copies
            );
            ("copies", what)
        } else if !(0..=ZSTD_LEVEL_MAX).contains(&self.zstd_level) {
            (
                "zstd_level",
                format!("zstd_level must be from 0 (no compression) to {ZSTD_LEVEL_MAX}"),
            )
        } else if self.bundled_bytes > BUNDLED_BYTES_MAX {
            ("bundled_bytes", "bundled_bytes must be at most 1 MiB".to_owned())
        } else {
            return None;
        };
        Some((key, what))
    }
}

/// Whether programs can access a tree while it is not mounted. If so, they read zeros or poison in
/// released files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Umount {
    /// Only the root user can enter the tree's root directory: see [`crate::closed_root`].
    #[default]
    Closed,
    /// The tree's root directory keeps the mode that the mount shows.
    Open,
}

/// The bytes that released files show in the lower directory: see [`crate::poison`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Poison {
    /// Text that tells readers to mount the tree, if the file system can share blocks.
    #[default]
    Auto,
    /// Zeros.
    Off,
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn usual_level() -> i32 {
    3
}

fn usual_bundled() -> u64 {
    64 << 10
}

fn usual_keep() -> u64 {
    30 * 24 * 3600
}

/// The home of a tier.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
    /// The settings of the tier.
    pub description: TierDescription,
    /// A key file that is used instead of those in the description.
    pub key: Option<PathBuf>,
}

impl Home {
    /// Makes a new tier: a home, its archives, and the mark of the tree.
    ///
    /// # Errors
    /// If any of these already exists.
    pub fn init(
        path: &Path,
        tree: &dyn FileSystem,
        wish: &TierDescription,
        around: &Environment,
    ) -> Result<Self> {
        check_copies(wish.copies, wish.archives.len())?;
        check_number(wish.archives.len())?;
        if let Some(TreeMark { tier, home }) = mark_of(tree, around.marks)? {
            let home = String::from_utf8_lossy(&home).into_owned();
            return Err(refused(format!("the tree already belongs to tier {tier} ({home})")));
        }
        let tier = around.identities.make();
        let mut description = TierDescription { tier, ..wish.clone() };
        // Reports invalid inputs before anything is created.
        for archive in &mut description.archives {
            archive.key.as_deref().map(Key::read).transpose()?;
            archive.address.check_place()?;
            archive.id = around.identities.make();
        }
        let mut made = Cleanup::default();
        let new = absent(path, &[SETTINGS, CATALOGUE]);
        let home = Self::make(path, description)?;
        made.add(new);
        for archive in &home.description.archives {
            made.join(make_archive(archive, tier)?);
        }
        home.save()?;
        // No file of the new tree was archived yet. So the catalogue is complete, and no earlier
        // use of it ended uncleanly.
        let catalogue = Catalogue::open(&home.path.join(CATALOGUE))?;
        catalogue.end_doubt()?;
        catalogue.note_listed()?;
        catalogue.end_use()?;
        home.mark(tree, around, Origin::New)?;
        made.keep();
        Ok(home)
    }

    fn make(path: &Path, description: TierDescription) -> Result<Self> {
        // Reports invalid inputs before anything is created.
        settings_text(&path.join(SETTINGS), &description)?;
        private::create_dir_all(path).map_err(Error::file(path))?;
        let path = path.canonicalize().map_err(Error::file(path))?;
        if path.join(SETTINGS).exists() {
            return Err(refused(format!("{} is already the home of a tier", path.display())));
        }
        Ok(Self { path, description, key: None })
    }

    /// Makes a new home for a tier that has lost everything except its archives.
    ///
    /// # Errors
    /// If a home already exists at `path`. Also if the tree has another home that still exists,
    /// because the settings of that home would no longer be used.
    pub fn again(
        path: &Path,
        tree: &dyn FileSystem,
        remains: &SurvivingArchives,
        around: &Environment,
    ) -> Result<Self> {
        must_be_homeless(tree, remains.tier, around.marks)?;
        let (tier, archives) = (remains.tier, remains.attached.clone());
        let usual = TierDescription::usual(Vec::new(), None);
        let home = Self::make(path, TierDescription { tier, archives, ..usual })?;
        home.save()?;
        home.mark(tree, around, Origin::Rebuilt)?;
        Ok(home)
    }

    /// Closes the root directory of a tree before files in it are released, unless the settings
    /// leave it open.
    ///
    /// # Errors
    /// Errors of the lower file system.
    pub fn close_root(&self, tree: &dyn FileSystem, marks: Marks) -> Result<()> {
        let treatment = match self.description.umount {
            Umount::Closed => Treatment::Close,
            Umount::Open => Treatment::Leave,
        };
        ClosedRoot::enter(tree, marks, treatment).map(drop).map_err(Error::below(b""))
    }

    /// Marks a rebuilt tree as this tier's, unless it is marked already.
    ///
    /// # Errors
    /// If the tree belongs to another tier. Errors of writing the mark.
    pub fn adopt(&self, tree: &dyn FileSystem, around: &Environment) -> Result<()> {
        match mark_of(tree, around.marks)? {
            Some(mark) if mark.tier == self.description.tier => Ok(()),
            Some(mark) => Err(refused(format!("the tree belongs to tier {}", mark.tier))),
            None => self.mark(tree, around, Origin::Rebuilt),
        }
    }

    /// Records the present address and key of each given archive, and attaches given archives that
    /// the home does not list.
    ///
    /// # Errors
    /// If there are too many archives.
    pub fn find_archives(&mut self, remains: &SurvivingArchives) -> Result<()> {
        for archive in &remains.attached {
            let mut known = self.description.archives.iter_mut();
            match known.find(|known| known.id == archive.id) {
                Some(known) => {
                    let usage = match known.usage {
                        ArchiveUsage::Retired => ArchiveUsage::Retired,
                        _ => ArchiveUsage::Active,
                    };
                    *known = ArchiveEntry { usage, ..archive.clone() };
                }
                None => self.attach(&archive.address, archive.id, archive.key.clone())?,
            }
        }
        self.save()
    }

    /// Reads the settings of a home.
    ///
    /// # Errors
    /// If there is no home, or its settings are invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let settings = path.join(SETTINGS);
        let text = fs::read_to_string(&settings).map_err(|error| match error.kind() {
            ErrorKind::NotFound => refused(format!(
                "{} is not the home of a tier; create one with `fslab tier init`",
                path.display()
            )),
            _ => Error::File { path: settings.clone(), source: error },
        })?;
        let description: TierDescription =
            toml::from_str(&text).map_err(|error| Error::Settings {
                path: settings.clone(),
                line: line_of(&text, error.span()),
                what: error.message().to_owned(),
            })?;
        if let Some((key, what)) = description.wrong() {
            let line = line_of_key(&text, key);
            return Err(Error::Settings { path: settings, line, what });
        }
        Ok(Self { path: path.to_owned(), description, key: None })
    }

    /// The directory of the home.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds an archive of this tier, or makes a new one. A new archive is encrypted if a key file
    /// is given.
    ///
    /// # Errors
    /// If the archive belongs to another tier, the key is wrong, or another attached archive with
    /// this identity is still in use.
    pub fn attach(&mut self, archive: &ArchiveAddress, id: Id, key: Option<PathBuf>) -> Result<()> {
        // Reports invalid inputs before anything is created.
        let usage = ArchiveUsage::Active;
        let wanted = ArchiveEntry { id, address: archive.clone(), key: key.clone(), usage };
        settings_text(&self.path.join(SETTINGS), &wanted)?;
        let mut made = Cleanup::default();
        if !archive.is_made() {
            archive.check_place()?;
            made.join(make_archive(&wanted, self.description.tier)?);
        }
        let found = archive.describe()?;
        let mut known = self.description.archives.iter().filter(|known| known.id == found.id);
        let key = key.or_else(|| known.next().and_then(|known| known.key.clone()));
        key_of(&found, archive, key.as_deref())?;
        if found.owner != self.description.tier {
            let shown = archive.label();
            return Err(refused(format!("{shown} belongs to tier {}", found.owner)));
        }
        let others = self.description.archives.iter().filter(|known| known.id != found.id);
        check_number(others.count() + 1)?;
        let address = archive.canonical()?;
        let is_alive = |other: &&ArchiveEntry| {
            other.id == found.id
                && other.address != address
                && other.address.describe().is_ok_and(|alive| alive.id == found.id)
        };
        if let Some(other) = self.description.attached_archives().find(is_alive) {
            let (shown, other) = (address.label(), other.address.label());
            return Err(refused(format!(
                "{shown} has the same identity as the archive {other}, which is still in use: \
                 files may need objects that only {other} contains"
            )));
        }
        self.description.archives.retain(|attached| attached.id != found.id);
        self.description.archives.push(ArchiveEntry { id: found.id, address, key, usage });
        // The archive is kept even if saving fails, because the home may already refer to it.
        made.keep();
        self.save()
    }

    /// Makes an empty archive with the identity of a lost one. A scrub fills it from the other
    /// archives. It is encrypted with the key of the lost one, unless another key is given.
    ///
    /// The archive is created before the home refers to it. If the command fails in between, the
    /// archive can be attached like any other.
    ///
    /// # Errors
    /// If the home lists no archive with this identity, the old archive is still at its address, or
    /// the directory is already an archive.
    pub fn replace(
        &mut self,
        lost: Id,
        archive: &ArchiveAddress,
        key: Option<PathBuf>,
    ) -> Result<()> {
        let Some(known) = self.description.archives.iter().position(|known| known.id == lost)
        else {
            let what = "the tier has no archive";
            return Err(refused(format!("{what} {lost}; see `fslab tier archives`")));
        };
        let old = &self.description.archives[known];
        if old.address.describe().is_ok_and(|found| found.id == lost) {
            let place = old.address.label();
            return Err(refused(format!("archive {lost} is not lost: it is still at {place}")));
        }
        let key = key.or_else(|| old.key.clone());
        let usage = ArchiveUsage::Active;
        let wanted = ArchiveEntry { id: lost, address: archive.clone(), key, usage };
        // Reports invalid inputs before anything is created.
        settings_text(&self.path.join(SETTINGS), &wanted)?;
        archive.check_place()?;
        let made = make_archive(&wanted, self.description.tier)?;
        let address = archive.canonical()?;
        self.description.archives[known] = ArchiveEntry { address, ..wanted };
        made.keep();
        self.save()
    }

    /// Changes how an archive is used.
    ///
    /// # Errors
    /// If too few archives would accept copies for the required number of copies.
    pub fn set_usage(&mut self, archive: Id, usage: ArchiveUsage) -> Result<()> {
        self.change_usage(archive, usage)?;
        self.save()
    }

    /// Like [`Self::set_usage`], but only in memory.
    ///
    /// # Errors
    /// As [`Self::set_usage`].
    pub fn change_usage(&mut self, archive: Id, usage: ArchiveUsage) -> Result<()> {
        let mut known = self.description.archives.iter_mut();
        let known = known.find(|known| known.id == archive);
        let unknown = || refused(format!("tier.toml does not list archive {archive}"));
        known.ok_or_else(unknown)?.usage = usage;
        self.check_copies(self.description.copies, 0)
    }

    /// Sets the required number of copies. A scrub makes the missing ones.
    ///
    /// # Errors
    /// If fewer archives than `copies` accept copies.
    pub fn ask_for_copies(&mut self, copies: usize) -> Result<()> {
        self.check_copies(copies, 0)?;
        self.description.copies = copies;
        self.save()
    }

    /// Checks that `copies` copies are possible after `more` archives are attached.
    ///
    /// # Errors
    /// If fewer archives than `copies` would accept copies.
    pub fn check_copies(&self, copies: usize, more: usize) -> Result<()> {
        check_copies(copies, self.description.active_archives() + more)
    }

    fn save(&self) -> Result<()> {
        let path = self.path.join(SETTINGS);
        let text = settings_text(&path, &self.description)?;
        write_durably(&path, text.as_bytes()).map_err(Error::file(&path))
    }

    fn mark(&self, tree: &dyn FileSystem, around: &Environment, origin: Origin) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let marks = around.marks;
        let home = self.path.as_os_str().as_bytes().to_vec();
        let mark = TreeMark { tier: self.description.tier, home };
        // Written before the mark of the tree. So a tree of this tier always has a writer identity.
        let known = writer_identity::begin(tree, around, mark.tier, origin);
        let marked = known.and_then(|()| marks.write_tree(tree, &mark));
        marked.map_err(|error| match error.errno() {
            Errno::PERM if marks != Marks::Trusted => {
                refused("the tree belongs to another user; its owner can make it a tier".to_owned())
            }
            Errno::OPNOTSUPP if marks == Marks::Trusted => refused(
                "the tree's file system does not support `trusted.` xattrs, in which root's tiers \
                 record which bytes are offline"
                    .to_owned(),
            ),
            _ => Error::below(b"")(error),
        })
    }

    /// Opens the archives for a tree. An archive that can't be opened is logged, and is unavailable
    /// until it can be opened. Files with a copy in another archive can be recalled without it.
    ///
    /// # Errors
    /// If none can be opened.
    pub fn archives(
        &self,
        purpose: &Purpose,
        around: &Environment,
    ) -> Result<Vec<Arc<dyn Archive>>> {
        let mut archives: Vec<Arc<dyn Archive>> = Vec::new();
        let mut problems = Vec::new();
        for attached in self.description.attached_archives() {
            let (archive, problem) = self.open_archive(attached, purpose, around);
            archives.push(archive);
            problems.extend(problem);
        }
        if problems.len() == archives.len()
            && let Some(problem) = problems.pop()
        {
            problems.iter().for_each(|error| tracing::warn!("an archive can't be used: {error}"));
            return Err(problem);
        }
        problems
            .iter()
            .for_each(|error| tracing::warn!("an archive is unavailable for now: {error}"));
        Ok(archives)
    }

    /// Opens an archive. If that fails, returns it as unavailable, with the error.
    pub fn open_archive(
        &self,
        attached: &ArchiveEntry,
        purpose: &Purpose,
        around: &Environment,
    ) -> (Arc<dyn Archive>, Option<Error>) {
        let known = (attached.id, attached.address.label());
        let (home, attached, purpose) = (self.clone(), attached.clone(), purpose.clone());
        let (tier, identities) = (self.description.tier, Arc::clone(&around.identities));
        let open = Box::new(move || {
            let key = home.key_file(&attached);
            archive::open(&attached.address, (tier, &purpose), key, &identities)
        });
        let (archive, problem) = ReconnectingArchive::new(known, open, Arc::clone(&around.clock));
        (Arc::new(archive), problem)
    }

    /// Returns the file with the key of an archive. Each archive may have its own key, so the given
    /// key file is used only if it is the right one. If neither file is right, opening the archive
    /// reports the error.
    fn key_file<'a>(&'a self, attached: &'a ArchiveEntry) -> Option<&'a Path> {
        let known = attached.key.as_deref();
        let Ok(found) = attached.address.describe() else { return known };
        if found.encryption.is_none() {
            return known;
        }
        let mut files = self.key.as_deref().into_iter().chain(known);
        let is_right = |file: &&Path| key_of(&found, &attached.address, Some(file)).is_ok();
        files.clone().find(is_right).or_else(|| files.next())
    }

    /// Opens the catalogue.
    ///
    /// # Errors If another program uses the catalogue, or the catalogue is damaged.
    pub fn catalogue(&self) -> Result<Catalogue> {
        Catalogue::open(&self.path.join(CATALOGUE))
    }

    /// Returns the engine's settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            copies: self.description.copies,
            level: self.description.zstd_level,
            bundled: self.description.bundled_bytes,
            deltas: self.description.deltas,
            keep: Duration::from_secs(self.description.keep_seconds),
            home: Some(self.path.clone()),
            policy: Some(self.path.join(POLICY)),
            known_archives: self.description.archives.clone(),
            root: match self.description.umount {
                Umount::Closed => Treatment::Close,
                Umount::Open => Treatment::Open,
            },
            poison: self.description.poison == Poison::Auto,
            ..Settings::of(self.description.tier)
        }
    }

    /// Returns the programs that may not recall.
    ///
    /// # Errors
    /// If an entry is invalid; the error contains the file, the line and the entry.
    pub fn deny(&self, programs: Arc<dyn Programs>) -> Result<DenyList> {
        DenyList::new(&self.description.deny, programs).map_err(|what| {
            let path = self.path.join(SETTINGS);
            // The file was read just now. If it has been removed since, the error is still
            // reported.
            let text = fs::read_to_string(&path).unwrap_or_default();
            Error::Settings { path, line: line_of_key(&text, "deny"), what }
        })
    }

    /// Starts an engine over the tree.
    ///
    /// # Errors
    /// If the tree, an archive or the catalogue can't be used.
    pub fn open(
        &self,
        tree: Arc<dyn FileSystem>,
        settings: Settings,
        around: Environment,
    ) -> Result<Arc<Tier>> {
        // The tree is claimed before its archives are locked, so that an error refers to the tree.
        claim(&*tree)?;
        check_mark(&*tree, self.description.tier, around.marks)?;
        let is_closed = closed_root::is_closed_to_owner(&*tree, around.marks);
        if is_closed.map_err(Error::below(b""))? {
            // The caller opened the root directory, so another engine must have used the tree and
            // closed the directory since.
            return Err(Error::InUse);
        }
        private::warn_if_open(&self.path, &[CATALOGUE]);
        // A read-only tree does not write to archives either.
        let purpose = match settings.read_only {
            true => Purpose::Read,
            false => Purpose::Write(writer_of(&tree, &around)?),
        };
        let archives = self.archives(&purpose, &around)?;
        self.warn_if_catalogue_is_lost();
        Tier::open(tree, settings, archives, self.catalogue()?, around)
    }
}

impl Home {
    /// Returns the files that are locked while a tree of the tier is in use: the catalogue, and the
    /// lease of each archive.
    #[must_use]
    pub fn locked_files(&self) -> Vec<PathBuf> {
        let archives = self.description.attached_archives();
        let leases = archives.filter_map(|archive| archive.address.lock_file());
        leases.chain([self.path.join(CATALOGUE)]).collect()
    }

    /// Returns whether an archive is an active one of the tier, at the address in the home.
    #[must_use]
    pub fn knows(&self, archive: &ArchiveAddress) -> bool {
        let is_at = |known: &ArchiveEntry| {
            let places = (known.address.canonical(), archive.canonical());
            matches!(places, (Ok(known), Ok(place)) if known == place)
        };
        let mut known = self.description.archives.iter().filter(|known| known.usage.is_active());
        let found = archive.describe();
        found.is_ok_and(|found| known.any(|known| known.id == found.id && is_at(known)))
    }

    /// Makes a tree of the tier the writer of an archive, in place of the previous writer.
    ///
    /// # Errors
    /// If the tree can't be identified, the archive belongs to another tier, or the archive is in
    /// use.
    pub fn take_over(
        &self,
        archive: &ArchiveAddress,
        tree: &Arc<dyn FileSystem>,
        around: &Environment,
    ) -> Result<()> {
        let writer = writer_of(tree, around)?.ok_or_else(|| {
            refused(
                "can't store an xattr on the tree's root directory, so archives can't identify the \
                 tree"
                    .to_owned(),
            )
        })?;
        archive.take_over(self.description.tier, &writer)
    }

    /// Warns if there is no catalogue. A new tier has a catalogue from the beginning, so a missing
    /// one was lost.
    fn warn_if_catalogue_is_lost(&self) {
        let path = self.path.join(CATALOGUE);
        if fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            return;
        }
        let path = path.display();
        tracing::warn!(
            "catalogue {path} is missing, so a new, empty one is used: run `fslab tier scan` to \
             fill it"
        );
    }
}

fn must_be_homeless(tree: &dyn FileSystem, tier: Id, marks: Marks) -> Result<()> {
    use std::os::unix::ffi::OsStringExt;
    let Some(mark) = mark_of(tree, marks)? else { return Ok(()) };
    if mark.tier != tier {
        return Err(refused(format!("the tree belongs to tier {}", mark.tier)));
    }
    let home = PathBuf::from(std::ffi::OsString::from_vec(mark.home));
    let is_others = || Home::read(&home).is_ok_and(|found| found.description.tier != tier);
    if matches!(home.join(SETTINGS).try_exists(), Ok(false)) || is_others() {
        return Ok(());
    }
    Err(refused(format!(
        "the tree already has the home {0}: use `--home {0}`, or move that home away first",
        home.display()
    )))
}

/// Makes an archive. It is encrypted if the entry has a key file.
fn make_archive(archive: &ArchiveEntry, owner: Id) -> Result<Cleanup> {
    let key = archive.key.as_deref().map(Key::read).transpose()?;
    archive.address.make(&NewArchive { id: archive.id, owner, key: key.as_ref() })
}

fn check_copies(copies: usize, found: usize) -> Result<()> {
    match copies {
        0 => Err(refused("a tier needs at least one copy of each archived file".to_owned())),
        wanted if wanted > found => {
            Err(Error::TooFewArchives { wanted, found, unavailable: Vec::new() })
        }
        _ => Ok(()),
    }
}

fn check_number(archives: usize) -> Result<()> {
    match archives {
        0..=COPIES_MAX => Ok(()),
        _ => Err(refused(format!(
            "a tier has at most {COPIES_MAX} archives, including detached ones; remove archives \
             without copies from tier.toml"
        ))),
    }
}

/// Returns the mark on the root of a tree.
fn mark_of(tree: &dyn FileSystem, marks: Marks) -> Result<Option<TreeMark>> {
    marks.read_tree(tree).map_err(|error| refused(format!("the tree: {error}")))
}

fn refused(what: String) -> Error {
    Error::Refused { what }
}

/// Returns the line of a setting, or the first line if the setting is missing.
fn line_of_key(text: &str, key: &str) -> usize {
    let is_its = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key);
    1 + text.lines().position(is_its).unwrap_or(0)
}
