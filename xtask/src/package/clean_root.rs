//! Tests the package in a minimal Debian. apt installs the package, and an ordinary user follows a
//! tutorial. apt then upgrades the package while mounts run, removes it and purges it. Afterwards,
//! the root directory must contain the same files as before.

mod listing;
mod machine;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::listing::Listing;
use self::machine::{Machine, USER};
use super::layout::Age;
use super::trial;
use crate::tally::Tally;
use crate::{environment, guide, process};

/// The tutorial whose commands are run.
const TUTORIAL: &str = "docs/guide/src/tutorials/compressing.md";

/// The folder for the packages and scripts of the trial, in the minimal Debian.
const PLACE: &str = "srv/trial";

/// Files of the administrator. The package must never remove them.
const OWN: [&str; 4] = [
    "etc/fslab",
    "etc/fslab/files.conf",
    "etc/systemd/system/fslab@.service.d",
    "etc/systemd/system/fslab@.service.d/own.conf",
];

/// Enables the units of a mount and of a timer, and changes one unit, as described in the guide.
const ENABLE: &str = r#"
mkdir -p /srv/packed /srv/files /etc/fslab /etc/systemd/system/fslab@.service.d
cp /usr/share/doc/fslab/examples/mount.conf /etc/fslab/files.conf
echo '# changed' >> /etc/fslab/files.conf
printf '[Service]\nNice=5\n' > /etc/systemd/system/fslab@.service.d/own.conf
systemctl daemon-reload
systemctl enable --now fslab@files fslab-tier-policy@srv-photos.timer
findmnt --types fuse.fslab /srv/files
echo before > /srv/files/words
"#;

/// Makes a mount as the ordinary user, and starts a program that writes to an open file during the
/// upgrade.
const WRITE: &str = r#"
mkdir -p ~/lower ~/mount
fslab mount -l null ~/lower ~/mount
cat > ~/writer.sh <<'END'
exec 3>> ~/mount/lines
while [ ! -e ~/end ]; do echo line >&3 || exit 1; sleep 0.05; done
touch ~/ended-well
END
bash ~/writer.sh > /dev/null 2>&1 &
until [ -s ~/mount/lines ]; do sleep 0.1; done
"#;

/// Prints the state that an upgrade must not change: the mounts with their IDs, the daemon of the
/// unit, and the settings of the administrator.
const STATE: &str = r#"
grep ' fuse.fslab ' /proc/self/mountinfo
systemctl show --property MainPID,NRestarts,ActiveState,Nice fslab@files
systemctl is-active fslab-tier-policy@srv-photos.timer
sha256sum /etc/fslab/files.conf /etc/systemd/system/fslab@.service.d/own.conf
"#;

/// Uses both mounts after the upgrade, and stops the program that writes.
const WORKED_ON: &str = r#"
[ "$(cat /srv/files/words)" = before ]
echo after > /srv/files/words
home=/home/user
count=$(wc -l < $home/lower/lines)
sleep 0.5
[ "$(wc -l < $home/lower/lines)" -gt "$count" ]
touch $home/end
tries=0
until [ -e $home/ended-well ]; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.1; done
"#;

/// Prints what remains of the package in the running system: units, links to units, mounts,
/// processes.
const REMAINS: &str = r#"
systemctl list-units --all --plain --no-legend 'fslab*' | sed 's/^/unit: /'
systemctl list-unit-files --no-legend 'fslab*' | sed 's/^/unit file: /'
sed -n '/ fuse\.fslab /s/^/mount: /p' /proc/self/mounts
for process in /proc/[0-9]*; do
  program=$(readlink "$process/exe" || true)
  case $program in /usr/bin/fslab*) echo "process: ${process#/proc/} $program" ;; esac
done
"#;

/// Makes the packages of a program and tests them.
pub fn run(fslab: &Path) -> Result<Tally> {
    if let Some(reason) = environment::why_no_mounts() {
        return Ok(Tally::skip("clean-root", reason));
    }
    if environment::find_tool("mmdebstrap").is_none() {
        let reason = "mmdebstrap is not installed; `cargo xtask setup --for package` installs it";
        return Ok(Tally::skip("clean-root", reason));
    }
    let machine = Machine::start()?;
    let place = machine.root().join(PLACE);
    fs::create_dir_all(&place)?;
    let trial = Trial { machine: &machine, before: Listing::of(&machine.root())? };
    let older = super::make(fslab, Age::Older, &place, super::QUICK)?;
    let current = super::make(fslab, Age::Current, &place, super::QUICK)?;
    trial.run(&path_inside(&older)?, &path_inside(&current)?)
}

/// Returns the path of a package inside the minimal Debian.
fn path_inside(package: &Path) -> Result<String> {
    let name = package.file_name().context("a package has no name")?;
    Ok(format!("/{PLACE}/{}", name.to_string_lossy()))
}

/// A step of the trial.
type Step<'a> = &'a dyn Fn(&Trial<'_>) -> Result<Tally>;

/// A trial and the list of files before it.
struct Trial<'a> {
    machine: &'a Machine,
    before: Listing,
}

impl Trial<'_> {
    /// Runs the steps until one fails. Each step needs those before it.
    fn run(&self, older: &str, current: &str) -> Result<Tally> {
        let mut tally = Tally::default();
        let steps: [(&str, Step<'_>); 6] = [
            ("install", &|trial| trial.install(older)),
            ("tutorial", &|trial| trial.tutorial()),
            ("units", &|trial| trial.passed(ENABLE)),
            ("upgrade", &|trial| trial.upgrade(current)),
            ("remove", &|trial| trial.remove()),
            ("purge", &|trial| trial.purge()),
        ];
        for (name, step) in steps {
            println!("deb: {name} in a clean Debian");
            tally += match step(self) {
                Ok(one) => one,
                Err(error) if process::interrupted() => return Err(error),
                Err(error) => Tally::fail(format!("clean-root[{name}]: {error:#}")),
            };
            if !tally.is_good() {
                break;
            }
        }
        Ok(tally)
    }

    fn passed(&self, script: &str) -> Result<Tally> {
        self.machine.run(script).map(|_| Tally::pass())
    }

    fn install(&self, package: &str) -> Result<Tally> {
        self.machine.run("apt-get update -q")?;
        self.machine.run(&format!("apt-get install -q -y {package}"))?;
        trial::has_files(&self.machine.root())?;
        let said = self.machine.run("fslab --version; ldd /usr/bin/fslab")?;
        ensure!(!said.contains("not found"), "a library is missing:\n{said}");
        Ok(Tally::pass())
    }

    fn tutorial(&self) -> Result<Tally> {
        let file = format!("{PLACE}/tutorial.sh");
        guide::run_elsewhere(TUTORIAL, |script| {
            fs::write(self.machine.root().join(&file), script)?;
            Ok(self.machine.users_file(&format!("/{file}")))
        })
    }

    fn upgrade(&self, package: &str) -> Result<Tally> {
        self.machine.run_as_user(WRITE)?;
        let (version, state) = (self.version()?, self.machine.run(STATE)?);
        let mounts = state.matches(" fuse.fslab ").count();
        ensure!(
            mounts == 2 && state.contains("Nice=5\n"),
            "the state before the upgrade is wrong:\n{state}"
        );
        self.machine.run(&format!("apt-get install -q -y {package}"))?;
        let (new_version, new_state) = (self.version()?, self.machine.run(STATE)?);
        ensure!(new_version != version, "the version is still {version}");
        ensure!(new_state == state, "the upgrade changed\n{state}to\n{new_state}");
        self.passed(WORKED_ON)
    }

    fn version(&self) -> Result<String> {
        self.machine.run("dpkg-query --show --showformat '${Version}' fslab")
    }

    /// Removes the package while both mounts run. The unit is stopped, and the user's mount remains
    /// until the user unmounts it.
    fn remove(&self) -> Result<Tally> {
        let said = self.machine.run("apt-get remove -q -y fslab 2>&1")?;
        let point = format!("/home/{USER}/mount");
        let notice = format!("{point} is still mounted");
        ensure!(
            said.contains(&notice),
            "apt does not print that {notice}:
{said}"
        );
        self.machine.run_as_user("echo removed > ~/mount/lines && fusermount3 -u ~/mount")?;
        let lower = self.machine.run(&format!("cat /home/{USER}/lower/lines"))?;
        ensure!(lower == "removed\n", "the file in the lower directory contains {lower:?}");
        self.machine.run("sleep 1")?;
        // Links of enabled units remain until the purge, for a reinstallation.
        self.nothing_remains(|line| line.contains(" not-found "))?;
        for name in OWN {
            ensure!(self.machine.root().join(name).exists(), "/{name} was removed");
        }
        ensure!(!self.machine.root().join("usr/bin/fslab").exists(), "the program remains");
        Ok(Tally::pass())
    }

    fn purge(&self) -> Result<Tally> {
        self.machine.run("apt-get purge -q -y fslab; apt-get autoremove -q -y --purge")?;
        self.nothing_remains(|_| false)?;
        let differences = Listing::of(&self.machine.root())?.since(&self.before, &OWN);
        ensure!(differences.is_empty(), "\n{}", differences.join("\n"));
        Ok(Tally::pass())
    }

    fn nothing_remains(&self, may_remain: impl Fn(&str) -> bool) -> Result<()> {
        let remains = self.machine.run(REMAINS)?;
        let remains: Vec<&str> = remains.lines().filter(|line| !may_remain(line)).collect();
        ensure!(remains.is_empty(), "parts of the package remain:\n{}", remains.join("\n"));
        Ok(())
    }
}
