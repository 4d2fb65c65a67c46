//! Makes a tier from a directory, adds archives, and rebuilds a tier from its archives.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fslab_tier::archive::{ArchiveAddress, Key};
use fslab_tier::command::{self, Command};
use fslab_tier::home::{
    ArchiveEntry, Home, Poison, SurvivingArchives, TierDescription, Umount, writer_of,
};
use fslab_tier::stored::Marks;
use fslab_tier::{Environment, own_request, poison, rebuild};
use fslab_vfs::{FileSystem, LockMode, Size, Timestamp};
use serde_json::json;

use super::access::Access;
use super::show::Detail;
use super::{parse_bundled, unusable};
use crate::commands::places::resolved;
use crate::layers::{around, close_owners_tree, home_of};
use crate::output::harmless;
use crate::units::{counted, counted_as, parse_duration};

/// Arguments of `fslab tier init`.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// The archive (may be given several times). This is a directory on another disk, as a path or
    /// a URL such as dir:/mnt/archive, or a prefix of an S3 bucket, s3://BUCKET/PREFIX
    #[arg(long = "archive", value_name = "ARCHIVE", required = true)]
    archives: Vec<OsString>,
    /// A new directory outside of the tree for settings and catalogue
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
    /// Number of archives that need a copy of a file before the file may be released
    #[arg(long, default_value_t = 1)]
    copies: usize,
    /// zstd level for archived data; 0 for no compression
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i32).range(0..=19))]
    zstd_level: i32,
    /// Bundle files up to this size into one object; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_bundled)]
    bundle: Size,
    /// Archive only the changed blocks of files of more than 1 MiB. The unchanged blocks stay in
    /// the objects of earlier versions, which are kept as long as later versions need them
    #[arg(long)]
    deltas: bool,
    /// Retention time of replaced and removed versions
    #[arg(long, default_value = "30d", value_parser = parse_duration)]
    keep: Duration,
    /// Encrypt archived data with the key in this file; make one with `fslab tier key`
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Whether programs can use the tree while it is not mounted. `closed` gives its root directory
    /// mode 0400. With `open` this directory keeps its mode, so programs can read the files.
    /// --poison determines the content of released files
    #[arg(long, value_name = "HOW", default_value = "closed", value_parser = parse_word::<Umount>)]
    umount: Umount,
    /// Content that released files have while the tree is not mounted. With `auto` on XFS and
    /// Btrfs, it is a text that mentions the archive; otherwise it is zeros. Quotas, `ls -s` and
    /// `du` count the space of this text
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_word::<Poison>)]
    poison: Poison,
    /// The directory whose files are tiered
    tree: PathBuf,
}

/// Parses a value in the spelling of `tier.toml`.
fn parse_word<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(text.into())
}

impl Init {
    /// Makes the tier.
    pub fn run(&self, detail: Detail) -> Result<()> {
        let lower = claimed(&self.tree)?;
        let around = around(&crate::stack_context::of_program());
        let wish = self.wish()?;
        let home = Home::init(&self.home, &*lower, &wish, &around)?;
        let (tree, tier) = (self.tree.display(), home.description.tier);
        if detail == Detail::Json {
            let archives = wish.archives.iter().map(|entry| entry.address.to_string());
            say!(
                "{}",
                json!({
                    "event": "made-tier",
                    "tier": tier.to_string(),
                    "tree": self.tree.to_string_lossy(),
                    "home": self.home.to_string_lossy(),
                    "archives": archives.collect::<Vec<_>>(),
                })
            );
        }
        if !detail.is_text() {
            return Ok(());
        }
        say!("tier {tier}; mount it with: fslab mount -l tier {tree} {tree}");
        say_what_umount_leaves(&wish, around.marks, &self.tree, &lower);
        let (copies, archives) = (wish.copies, wish.archives.len());
        if archives > copies {
            say!(
                "each file is copied to {copies} of {archives} archives; the others are used only \
                 if one of these is full or fails. For a copy in every archive, use --copies \
                 {archives}"
            );
        }
        wish.archives.iter().try_for_each(|entry| {
            say_if_beside(&entry.address, &self.tree)?;
            say_what_is_retained(&entry.address)
        })
    }

    fn wish(&self) -> Result<TierDescription> {
        let archives = addresses_of(&self.archives)?;
        must_lie_outside(&self.tree, &archives, [&self.home].into_iter().chain(&self.key))?;
        let key = self.key.as_deref().map(resolved).transpose()?;
        Ok(TierDescription {
            copies: self.copies,
            zstd_level: self.zstd_level,
            bundled_bytes: self.bundle.bytes(),
            deltas: self.deltas,
            keep_seconds: self.keep.as_secs(),
            umount: self.umount,
            poison: self.poison,
            ..TierDescription::usual(archives, key)
        })
    }
}

/// Prints which users can read released files while the tree is not mounted, and which content they
/// get.
fn say_what_umount_leaves(
    wish: &TierDescription,
    marks: Marks,
    tree: &Path,
    lower: &Arc<dyn FileSystem>,
) {
    let is_poisoned = wish.poison == Poison::Auto && poison::is_possible(lower);
    let what = match is_poisoned {
        true => "released files as the text \"fslab: this file is in an archive\"",
        false => "released files as zeros",
    };
    let tree = tree.display();
    if wish.umount == Umount::Open {
        say!("while {tree} is not mounted, anyone who may read its files reads {what}");
        return;
    }
    let (when, except) = match marks {
        Marks::Trusted => ("", " except through the mount"),
        Marks::Own(_) => (" while it is not mounted", ""),
    };
    say!(
        "after its first use, {tree} has mode 0400{when}, so ordinary users can't open its \
         files{except}. Root can open them, and reads {what}"
    );
}

/// Arguments of `fslab tier key`.
#[derive(Debug, clap::Args)]
pub struct MakeKey {
    /// The new key file, readable by its owner only
    file: PathBuf,
}

impl MakeKey {
    /// Makes the key.
    pub fn run(self, detail: Detail) -> Result<()> {
        use std::io::Read;
        let mut bytes = [0; 32];
        let source = std::fs::File::open("/dev/urandom");
        let drawn = source.and_then(|mut source| source.read_exact(&mut bytes));
        drawn.context("can't draw a key from /dev/urandom")?;
        Key::new(bytes).write(&self.file)?;
        let file = self.file.display();
        match detail {
            Detail::Json => say!("{}", json!({ "event": "made-key", "file": file.to_string() })),
            Detail::Errors => {}
            _ => say!(
                "{file} contains a new key; keep a copy of it, because encrypted data can't be \
                 read without the key"
            ),
        }
        Ok(())
    }
}

/// Arguments of `fslab tier attach`.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// The tree: its mount point or its directory
    tree: PathBuf,
    /// The archive: an archive of this tier, or a directory or bucket prefix for a new archive
    archive: OsString,
    /// The file with the key of an encrypted archive
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Make this tree the only writer of an archive; the tree that wrote to it before can then only
    /// read it. Objects that this tree does not need expire. The tree must not be mounted
    #[arg(long, conflicts_with = "in_place_of")]
    take_over: bool,
    /// Replace a lost archive by a new or empty directory. The tree must not be mounted
    #[arg(long, value_name = "ID")]
    in_place_of: Option<fslab_tier::Id>,
    /// New number of archives that need a copy of a file before it may be released. The tree must
    /// not be mounted
    #[arg(long, value_name = "COUNT")]
    copies: Option<usize>,
}

impl Attach {
    /// Returns the command for the daemon of the tree, if the tree is mounted.
    pub fn of_mounted_tree(&self) -> Result<Option<(Access, Command)>> {
        let tree = &self.tree;
        let Ok((access @ Access::Mounted(_), _)) = Access::to(tree) else { return Ok(None) };
        if self.take_over || self.in_place_of.is_some() || self.copies.is_some() {
            let tree = tree.display();
            bail_as!(
                BadInput,
                "{tree} is mounted; unmount it to use --take-over, --in-place-of or --copies"
            )
        }
        let address = address_of(&self.archive)?;
        must_lie_outside(tree, [&address], self.key.iter())?;
        let key = self.key.as_deref().map(resolved).transpose()?;
        Ok(Some((access, Command::Attach { address, key })))
    }

    /// Adds the archive.
    pub fn run(&self, detail: Detail) -> Result<()> {
        let done = self.attach(detail);
        close_owners_tree(&self.tree);
        done
    }

    fn attach(&self, detail: Detail) -> Result<()> {
        let archive = address_of(&self.archive)?;
        must_lie_outside(&self.tree, [&archive], self.key.iter())?;
        let tree = claimed(&self.tree)?;
        let mut home = Home::read(&home_of(&*tree)?)?;
        let around = around(&crate::stack_context::of_program());
        let key = self.key.as_deref().map(resolved).transpose()?;
        let is_known = self.take_over && key.is_none() && home.knows(&archive);
        // The number of copies is checked first, so that a refused command changes nothing.
        let more = usize::from(self.in_place_of.is_none() && !is_known);
        self.copies.map(|copies| home.check_copies(copies, more)).transpose()?;
        match self.in_place_of {
            Some(lost) => home.replace(lost, &archive, key)?,
            None if is_known => {}
            None => home.attach(&archive, around.identities.make(), key)?,
        }
        // The archive was checked above. After `take_over`, the other tree can only read the
        // archive.
        if self.take_over {
            let holder = archive.holder()?;
            if detail.is_text() {
                say!("{} {holder}", archive.label());
            }
            home.take_over(&archive, &tree, &around)?;
        }
        self.copies.map(|copies| home.ask_for_copies(copies)).transpose()?;
        let refusal = refusal(&archive, &tree, &around)?;
        if detail == Detail::Json {
            let (address, writable) = (archive.to_string(), refusal.is_none());
            say!("{}", json!({ "event": "attached", "archive": address, "is_writable": writable }));
        }
        if !detail.is_text() {
            return Ok(());
        }
        if let Some(refusal) = refusal {
            say!("{} {refusal}", archive.label());
        }
        if self.in_place_of.is_some() || self.copies.is_some() {
            let tree = self.tree.display();
            say!("to make the missing copies, run: fslab tier scrub {tree}");
        }
        say_if_beside(&archive, &self.tree)?;
        say_what_is_retained(&archive)
    }
}

/// Returns the reason why a tree may only read an archive, with advice; `None` if it may write.
fn refusal(
    archive: &ArchiveAddress,
    tree: &Arc<dyn FileSystem>,
    around: &Environment,
) -> Result<Option<String>> {
    Ok(archive.refusal(writer_of(tree, around)?.as_ref())?)
}

/// Prints a warning if the store of an archive retains deleted data.
fn say_what_is_retained(archive: &ArchiveAddress) -> Result<()> {
    if let Some(why) = archive.retention()? {
        say!("{}: {why}", archive.label());
    }
    Ok(())
}

/// Prints a warning if an archive and the tree are on the same file system. Then releasing a file
/// frees no space, and a failure of the disk destroys both copies.
fn say_if_beside(archive: &ArchiveAddress, tree: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let Some(archive) = archive.local_path() else { return Ok(()) };
    let device = |path: &Path| -> Result<u64> {
        Ok(path.metadata().with_context(|| path.display().to_string())?.dev())
    };
    if device(&archive)? == device(tree)? {
        let archive = archive.display();
        say!("{archive} is on the same file system as the tree, so releasing files frees no space");
    }
    Ok(())
}

/// Arguments of `fslab tier rebuild`.
#[derive(Debug, clap::Args)]
pub struct Rebuild {
    /// An archive of the tier (may be given several times). Archives that a surviving home lists
    /// are used too
    #[arg(long = "archive", value_name = "ARCHIVE", required = true)]
    archives: Vec<OsString>,
    /// The home of the tier: a new directory outside of the tree, or the surviving home, whose
    /// settings are kept
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
    /// The file with the key of encrypted archives (may be given several times)
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Restore the state of this time, such as 2026-11-20T12:00:00Z; later versions can be restored
    /// by `undelete`
    #[arg(long, value_name = "TIME")]
    before: Option<jiff::Timestamp>,
    /// Let the new tree write to these archives; use this only if the old tree is lost. Objects
    /// that the new tree does not need expire. Without this option, the new tree only reads the
    /// archives until you run `fslab tier attach --take-over`
    #[arg(long)]
    take_over: bool,
    /// Restore set-id bits, capabilities and devices from unencrypted archives too. Anyone who can
    /// write to such an archive could have planted them
    #[arg(long)]
    trust: bool,
    /// The directory for the tree, created if missing; files in it are kept
    tree: PathBuf,
}

impl Rebuild {
    /// Rebuilds the tree.
    pub fn run(&self, detail: Detail) -> Result<()> {
        let done = self.rebuild(detail);
        close_owners_tree(&self.tree);
        done
    }

    fn rebuild(&self, detail: Detail) -> Result<()> {
        let around = around(&crate::stack_context::of_program());
        // Read the home first, so that an unreadable home changes nothing.
        let left = self.home.join("tier.toml").exists().then(|| Home::read(&self.home));
        let left = left.transpose()?;
        let (archives, keys) = (addresses_of(&self.archives)?, all_resolved(&self.keys)?);
        must_lie_outside(&self.tree, &archives, [&self.home].into_iter().chain(&self.keys))?;
        let identities = &around.identities;
        let remains = SurvivingArchives::open(&archives, &keys, left.as_ref(), identities)?;
        // Only the last directory of the path is created, not its parents.
        match std::fs::create_dir(&self.tree) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(unusable(&format!("can't make {}", self.tree.display()), error));
            }
            _ => {}
        }
        let tree = claimed(&self.tree)?;
        let home = match left {
            Some(mut home) => {
                home.adopt(&*tree, &around)?;
                home.find_archives(&remains)?;
                home
            }
            None => Home::again(&self.home, &*tree, &remains, &around)?,
        };
        home.close_root(&*tree, around.marks)?;
        let (catalogue, archives) = (home.catalogue()?, &remains.archives);
        let request = own_request();
        let before = self.before.map(|time| Timestamp {
            seconds: time.as_second(),
            nanoseconds: u32::try_from(time.subsec_nanosecond()).unwrap_or(0),
        });
        let of = (&around, remains.tier);
        let poison = home.description.poison == Poison::Auto;
        let options = rebuild::Options { before, trust: self.trust, poison };
        let mut made = rebuild::rebuild(options, &tree, archives, &catalogue, of, &request)?;
        made.problems.extend(remains.problems);
        // Close the archives here: a tree can take over an archive only while nothing else uses it.
        drop(remains.archives);
        // After a partial rebuild, the objects of missing files would appear to be unneeded and
        // expire.
        let is_whole = made.problems.is_empty() && made.unplaced.is_empty();
        let takes_over = self.take_over && is_whole;
        for ArchiveEntry { address, .. } in remains.attached.iter().filter(|_| takes_over) {
            let holder = address.holder()?;
            if detail.is_text() {
                say!("{} {holder}", address.label());
            }
            let taken = home.take_over(address, &tree, &around);
            made.problems.extend(taken.err().map(|error| error.to_string()));
        }
        let mut refusals = Vec::new();
        for ArchiveEntry { address, .. } in home.description.attached_archives() {
            match refusal(address, &tree, &around) {
                Ok(refusal) => refusals.extend(refusal.map(|refusal| (address.label(), refusal))),
                Err(error) => made.problems.push(error.to_string()),
            }
        }
        report(&made, &refusals, detail)
    }
}

/// Parses the address of an archive from the command line. A relative path is relative to the
/// current directory.
pub(super) fn address_of(text: &OsStr) -> Result<ArchiveAddress> {
    let address = ArchiveAddress::parse(text)?;
    Ok(match address.local_path() {
        Some(path) => resolved(&path)?.into(),
        None => address,
    })
}

fn addresses_of(texts: &[OsString]) -> Result<Vec<ArchiveAddress>> {
    texts.iter().map(|text| address_of(text)).collect()
}

fn all_resolved(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| resolved(path)).collect()
}

/// Prints the result of a rebuild, and the archives that the new tree can only read. Fails if the
/// new tree differs from the original one.
fn report(made: &rebuild::Rebuilt, refusals: &[(String, String)], detail: Detail) -> Result<()> {
    if detail == Detail::Json {
        let mut value = json!(made);
        value["read_only"] = json!(refusals.iter().map(|(archive, _)| archive).collect::<Vec<_>>());
        say!("{value}");
    } else if detail.is_text() {
        report_to_people(made);
        for (archive, refusal) in refusals {
            say!("files can be read now; {archive} {refusal}");
        }
    }
    let [older, lost, unplaced, problems] =
        [&made.older, &made.lost, &made.unplaced, &made.problems].map(Vec::len);
    if older + lost + unplaced + problems == 0 {
        return Ok(());
    }
    bail!(
        "{older} files are in an earlier state and {lost} are in no archive. {unplaced} were not \
         restored because another file has their path. There were {problems} problems"
    )
}

fn report_to_people(made: &rebuild::Rebuilt) {
    let lists = [
        ("an earlier state", &made.older),
        ("in no archive", &made.lost),
        ("another file has its path", &made.unplaced),
        ("problem", &made.problems),
        ("not trusted", &made.left_out),
    ];
    for (what, list) in lists {
        list.iter().for_each(|line| say!("{what}: {}", harmless(line)));
    }
    let rebuild::Rebuilt { directories, others, links, younger, kept, earlier, .. } = made;
    let files = made.files + made.added;
    let mut younger_files = String::new();
    if made.tree_made.is_some() {
        younger_files = format!("; {younger} younger than the archived tree");
    } else {
        say!(
            "no archived tree was found, so files have the paths that they had when they were \
             archived. The attributes of directories are unknown"
        );
    }
    let directories = counted_as(*directories, "directory", "directories");
    let others = counted_as(*others, "symlink or special file", "symlinks or special files");
    say!(
        "made {}, {directories}, {others} and {}{younger_files}; kept {}",
        counted(files, "file"),
        counted(*links, "extra hard link"),
        counted(*kept, "existing file")
    );
    if !made.left_out.is_empty() {
        say!(
            "set-id bits, capabilities and devices were not restored. Any program that can write \
             to an unencrypted archive can plant them. To restore them, rebuild into an empty \
             directory with --trust"
        );
    }
    if *earlier > 0 {
        let versions = counted(*earlier, "other version");
        say!("{versions} can be restored: see `fslab tier versions` and `undelete`");
    }
}

/// Opens and locks a directory. Fails if another fslab uses it.
fn claimed(path: &Path) -> Result<Arc<dyn FileSystem>> {
    let shown = path.display();
    let tree = super::own_tree(path)?;
    match tree.lock_tree(LockMode::Passing) {
        Err(error) if error.errno() == fslab_vfs::Errno::BUSY => {
            bail_as!(BadInput, "{shown} is in use by another fslab mount or tool; stop it first")
        }
        locked => locked.with_context(|| shown.to_string())?,
    };
    Ok(Arc::new(tree))
}

/// Checks that the archives, the home and the keys are outside the tree. Otherwise they would be
/// archived with the tree's files; in particular, an archive must never contain its own key.
fn must_lie_outside<'a>(
    tree: &Path,
    archives: impl IntoIterator<Item = &'a ArchiveAddress>,
    others: impl Iterator<Item = &'a PathBuf>,
) -> Result<()> {
    let tree = resolved(tree)?;
    let archives = archives.into_iter().filter_map(ArchiveAddress::local_path);
    for place in archives.chain(others.cloned()) {
        if let Some(what) = command::overlap(&resolved(&place)?, &tree) {
            bail_as!(BadInput, "{what}");
        }
    }
    Ok(())
}
