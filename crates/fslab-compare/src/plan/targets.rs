//! The targets of a plan: `[[target]]`.

use std::path::PathBuf;

use serde::Deserialize;
use toml::de::{DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use super::checks::{Result, margin, size};
use super::matrix::{Combination, RawMatrix, combinations, place};
use super::source::Source;
use super::{Base, DevicePlan, ForeignMount, Form, ImagePlan, Over, TargetKind, TargetPlan};
use crate::workload;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    name: Spanned<String>,
    filesystem: Option<Spanned<String>>,
    #[serde(default)]
    mkfs: Vec<String>,
    #[serde(default)]
    mount: String,
    layers: Option<Spanned<Vec<String>>>,
    engine: Option<Spanned<String>>,
    over: Option<Spanned<String>>,
    overlay_options: Option<String>,
    mount_command: Option<Spanned<Vec<String>>>,
    unmount_command: Option<Vec<String>>,
    version_command: Option<Vec<String>>,
    directory: Option<PathBuf>,
    /// A block device that is used instead of an image.
    device: Option<PathBuf>,
    /// Whether the directory's files are dropped from the page cache before cold phases.
    cold: Option<bool>,
    in_process: Option<String>,
    source: Option<PathBuf>,
    aged: Option<PathBuf>,
    aged_workload: Option<Spanned<String>>,
    fill: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    needs: Option<String>,
    program: Option<PathBuf>,
    margin: Option<Spanned<String>>,
    matrix: Option<Spanned<RawMatrix>>,
    /// Whether the quick form contains the target.
    quick: Option<bool>,
}

/// The kernel's file system that is mounted over another one.
const OVERLAY: &str = "overlay";

pub(super) fn targets(
    source: &Source<'_>,
    raw: Option<Spanned<DeValue<'_>>>,
    form: Form,
) -> Result<Vec<TargetPlan>> {
    let mut plans = Vec::new();
    for raw in raw.into_iter().flat_map(list) {
        let written = read(source, raw.clone())?;
        let RawTarget { name, needs, matrix, quick, .. } = written.get_ref();
        // A key of the matrix that no value refers to is a mistake in the plan.
        let is_filled = |key: &str| !["name", "needs", "matrix"].contains(&key);
        let fields = raw.get_ref().as_table().into_iter().flatten();
        let values: Vec<_> = fields.filter(|(key, _)| is_filled(key.get_ref())).collect();
        for (key, _) in matrix.iter().flat_map(Spanned::get_ref) {
            let place = place(key.get_ref());
            if !values.iter().any(|(_, value)| holds(value.get_ref(), &place)) {
                let message = format!("`matrix`: no other key of the target uses {place}");
                return Err(source.error(key.span(), message));
            }
        }
        for combination in combinations(source, matrix.as_ref())? {
            let mut meant = raw.clone();
            fill_in(meant.get_mut(), &combination);
            let mut meant = read(source, meant)?;
            meant.get_mut().name = Spanned::new(name.span(), combination.name(name.get_ref()));
            meant.get_mut().needs.clone_from(needs);
            let plan = target(source, &meant)?;
            if form == Form::Full || *quick != Some(false) {
                plans.push((plan, name.span()));
            }
        }
    }
    let names = plans.iter().map(|(plan, span)| (&*plan.name, span.clone()));
    source.unique("name", names, "")?;
    if plans.is_empty() {
        return Err(source.error(0..0, "the plan has no [[target]]"));
    }
    Ok(plans.into_iter().map(|(plan, _)| plan).collect())
}

/// Returns the tables of `[[target]]`. A value that is not a list is treated as one table, which is
/// refused later.
fn list(raw: Spanned<DeValue<'_>>) -> Vec<Spanned<DeValue<'_>>> {
    let span = raw.span();
    match raw.into_inner() {
        DeValue::Array(list) => list.into_iter().collect(),
        other => vec![Spanned::new(span, other)],
    }
}

fn read(source: &Source<'_>, raw: Spanned<DeValue<'_>>) -> Result<Spanned<RawTarget>> {
    let read = Spanned::deserialize(ValueDeserializer::from(raw));
    read.map_err(|error| source.syntax_error(&error))
}

/// Whether a text within a value contains a placeholder.
fn holds(value: &DeValue<'_>, place: &str) -> bool {
    match value {
        DeValue::String(text) => text.contains(place),
        DeValue::Array(list) => list.iter().any(|value| holds(value.get_ref(), place)),
        _ => false,
    }
}

/// Replaces the placeholders of a matrix in every text within a value.
fn fill_in(value: &mut DeValue<'_>, combination: &Combination) {
    match value {
        DeValue::String(text) => *text = combination.fill_in(text).into(),
        DeValue::Array(list) => list.iter_mut().for_each(|one| fill_in(one.get_mut(), combination)),
        DeValue::Table(table) => {
            table.iter_mut().for_each(|(_, one)| fill_in(one.get_mut(), combination));
        }
        _ => {}
    }
}

impl RawTarget {
    fn is_overlay(&self) -> bool {
        self.filesystem.as_ref().is_some_and(|name| name.get_ref() == OVERLAY)
    }
}

fn target(source: &Source<'_>, spanned: &Spanned<RawTarget>) -> Result<TargetPlan> {
    let raw = spanned.get_ref();
    let name = raw.name.get_ref().clone();
    let fail = |message: String| {
        let name = raw.name.get_ref();
        Err(source.error(spanned.span(), format!("target `{name}`: {message}")))
    };
    let given = [
        ("filesystem", raw.filesystem.is_some()),
        ("mount_command", raw.mount_command.is_some()),
        ("directory", raw.directory.is_some()),
        ("in_process", raw.in_process.is_some()),
    ];
    let given: Vec<&str> = given.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    let [kind] = given[..] else {
        let found = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
        return fail(format!(
            "exactly one of `filesystem`, `mount_command`, `directory`, `in_process` is needed, \
             found {found}"
        ));
    };
    if let Some(key) = misplaced(raw, kind) {
        return fail(format!("`{key}` can't be used with `{kind}`"));
    }
    let least = fslab_sys::memory_bound::SMALLEST;
    let memory = raw.memory.as_ref().map(|memory| size(source, "memory", memory, least));
    let memory = memory.transpose()?;
    let kind = target_kind(source, spanned)?;
    let margin = margin(source, raw.margin.as_ref())?;
    let (needs, program) = (raw.needs.clone(), raw.program.clone());
    let plan = TargetPlan { kind, name, memory, needs, program, margin, slowed: None };
    if plan.program.is_some() && !plan.is_served() {
        return fail("`program` is only for targets that fslab mounts".to_owned());
    }
    Ok(plan)
}

/// Returns the first key that can't be used with a target of this kind.
fn misplaced(raw: &RawTarget, kind: &str) -> Option<&'static str> {
    let image = matches!(kind, "filesystem" | "mount_command");
    let (foreign, overlay) = (kind == "mount_command", raw.is_overlay());
    let keys = [
        ("mkfs", !raw.mkfs.is_empty() && !image),
        ("mount", !raw.mount.is_empty() && !image),
        ("layers", raw.layers.is_some() && (kind != "filesystem" || overlay)),
        ("engine", raw.engine.is_some() && (kind != "filesystem" || overlay)),
        ("over", raw.over.is_some() && !foreign && !overlay),
        ("overlay_options", raw.overlay_options.is_some() && !overlay),
        ("unmount_command", raw.unmount_command.is_some() && !foreign),
        ("version_command", raw.version_command.is_some() && !foreign),
        ("source", raw.source.is_some() && !image),
        ("aged", raw.aged.is_some() && !image),
        ("aged_workload", raw.aged_workload.is_some() && !image),
        ("fill", raw.fill.is_some() && !image),
        ("device", raw.device.is_some() && !image),
        ("cold", raw.cold.is_some() && kind != "directory"),
    ];
    keys.into_iter().find(|(_, misplaced)| *misplaced).map(|(key, _)| key)
}

fn target_kind(source: &Source<'_>, spanned: &Spanned<RawTarget>) -> Result<TargetKind> {
    let raw = spanned.get_ref();
    if let Some(path) = &raw.directory {
        let cold = raw.cold.unwrap_or(false);
        return Ok(TargetKind::Directory { path: path.clone(), cold });
    }
    if let Some(specification) = &raw.in_process {
        return Ok(TargetKind::InProcess { specification: specification.clone() });
    }
    let below = raw.filesystem.as_ref().filter(|_| !raw.is_overlay());
    let (key, kind) = match (below, &raw.over) {
        (Some(kind), _) => ("filesystem", kind),
        (None, Some(kind)) => ("over", kind),
        (None, None) => {
            let upper = if raw.is_overlay() { "`overlay`" } else { "`mount_command`" };
            let message = format!(
                "target `{}`: {upper} needs `over`, which names the file system underneath",
                raw.name.get_ref()
            );
            return Err(source.error(spanned.span(), message));
        }
    };
    let base = image(source, raw, base(source, key, kind)?)?;
    check_image(source, spanned, &base)?;
    if let Some(options) = &raw.engine {
        check_engine(source, options, raw)?;
        return Ok(TargetKind::Image { base, over: Over::Engine(options.get_ref().clone()) });
    }
    Ok(TargetKind::Image { base, over: over(source, raw)? })
}

fn image(source: &Source<'_>, raw: &RawTarget, kind: Base) -> Result<ImagePlan> {
    let share = |share: &Spanned<String>| {
        workload::percent(&Value::String(share.get_ref().clone()))
            .map_err(|wrong| source.error(share.span(), format!("`fill`: {wrong}")))
    };
    let hash = |hash: &Spanned<String>| {
        let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text = hash.get_ref();
        if (8..=64).contains(&text.len()) && text.bytes().all(digits) {
            return Ok(text.clone());
        }
        let message = "`aged_workload`: must be the first 8 to 64 digits of the hash that `fslab \
                       age show` prints, in lower case";
        Err(source.error(hash.span(), message))
    };
    let device = |path: &PathBuf| DevicePlan { path: path.clone(), ..DevicePlan::default() };
    Ok(ImagePlan {
        kind,
        device: raw.device.as_ref().map(device),
        mkfs: raw.mkfs.clone(),
        mount: raw.mount.clone(),
        source: raw.source.clone(),
        recorded: raw.aged.clone(),
        aged_workload: raw.aged_workload.as_ref().map(hash).transpose()?,
        fill_percent: raw.fill.as_ref().map(share).transpose()?,
    })
}

/// Checks a target with `engine`: the file system must be ext2, and the target can't have layers,
/// mount options, a source or `fill`.
fn check_engine(source: &Source<'_>, engine: &Spanned<String>, raw: &RawTarget) -> Result<()> {
    let is_ext2 = raw.filesystem.as_ref().is_some_and(|name| name.get_ref() == "ext2");
    let others = [
        ("layers", raw.layers.is_some()),
        ("mount", !raw.mount.is_empty()),
        ("source", raw.source.is_some()),
        ("fill", raw.fill.is_some()),
    ];
    let wrong = if is_ext2 {
        let other = others.into_iter().find(|(_, is_given)| *is_given);
        other.map(|(key, _)| format!("`{key}` can't be used with `engine`"))
    } else {
        Some("`engine` works only with ext2; set `filesystem = \"ext2\"`".to_owned())
    };
    wrong.map_or(Ok(()), |message| Err(source.error(engine.span(), message)))
}

/// Checks for keys that exclude each other.
fn check_image(source: &Source<'_>, spanned: &Spanned<RawTarget>, base: &ImagePlan) -> Result<()> {
    let raw = spanned.get_ref();
    let name = base.kind.name();
    let read_only = base.kind.is_read_only();
    let wrong = if read_only && base.source.is_none() && base.recorded.is_none() {
        format!("{name} is made from a directory; set `source` to that directory")
    } else if read_only && base.fill_percent.is_some() {
        format!("{name} is read-only, so it can't be filled")
    } else if read_only && raw.is_overlay() {
        format!("{name} is read-only, but the overlay needs a writable upper directory")
    } else if base.recorded.is_some() && (base.source.is_some() || !base.mkfs.is_empty()) {
        "an `aged` image is copied, so `source` and `mkfs` can't be set".to_owned()
    } else if base.aged_workload.is_some() && base.recorded.is_none() {
        "`aged_workload` states the workload of an aged image, so `aged` must name that \
         image"
            .to_owned()
    } else if base.device.is_some() && (read_only || base.recorded.is_some()) {
        "fslab makes a new file system on a `device`, so it can't be `aged` or read-only".to_owned()
    } else if base.kind == Base::Memory && base.device.is_some() {
        "tmpfs can't use a `device`".to_owned()
    } else if base.kind == Base::Memory && (base.recorded.is_some() || !base.mkfs.is_empty()) {
        "tmpfs has no image, so `aged` and `mkfs` can't be set".to_owned()
    } else {
        return Ok(());
    };
    Err(source.error(spanned.span(), format!("target `{}`: {wrong}", raw.name.get_ref())))
}

fn base(source: &Source<'_>, key: &str, raw: &Spanned<String>) -> Result<Base> {
    Base::find(raw.get_ref()).ok_or_else(|| {
        let more = (key == "filesystem").then_some(OVERLAY);
        source.unknown(&format!("`{key}`: unknown file system"), raw, Base::names().chain(more))
    })
}

fn over(source: &Source<'_>, raw: &RawTarget) -> Result<Over> {
    if raw.is_overlay() {
        return Ok(Over::Overlay(raw.overlay_options.clone().unwrap_or_default()));
    }
    if let Some(layers) = &raw.layers {
        let none = layers.get_ref().is_empty();
        let layers = layers.get_ref().clone();
        return Ok(if none { Over::Nothing } else { Over::Layers(layers) });
    }
    let Some(command) = &raw.mount_command else { return Ok(Over::Nothing) };
    for place in ["{lower}", "{mountpoint}"] {
        if !command.get_ref().iter().skip(1).any(|word| word.contains(place)) {
            let message = format!("`mount_command`: no argument contains {place}");
            return Err(source.error(command.span(), message));
        }
    }
    Ok(Over::Command(ForeignMount {
        mount: command.get_ref().clone(),
        unmount: raw.unmount_command.clone(),
        version: raw.version_command.clone(),
    }))
}
