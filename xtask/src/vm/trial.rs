//! The cases: the machine is suspended, rebooted and reset while programs use three kept mounts.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::machine::{Machine, Sleep};
use crate::process;
use crate::tally::Tally;

/// The stacks of the mounts, and the programs that acknowledge each fsync.
const STACKS: [&str; 3] = ["null", "zstd", "ext2"];
const PROGRAMS: [&str; 2] = ["append", "names"];

/// Programs on each mount; one only reads.
const PROGRAMS_ON_EACH: usize = 3;

const SCRIPTS: &str = "/usr/local/lib/trial";

/// Attempts to suspend without freezing programs first. Most are aborted after two seconds.
const ATTEMPTS: usize = 4;

/// Number of acknowledgements from each program before the machine is rebooted or reset.
const ACKNOWLEDGED_MIN: usize = 5;

/// Time limit of an orderly shutdown. It is less than systemd's time limits for stopping units.
const SHUTDOWN_MAX: Duration = Duration::from_secs(80);

/// Time limit for [`ACKNOWLEDGED_MIN`].
const PATIENCE: Duration = Duration::from_secs(300);

/// The last acknowledged number of each stack and program.
type Numbers = BTreeMap<(String, String), u64>;

/// All cases on one machine.
pub struct Trial<'a> {
    machine: &'a mut Machine,
    suspends: usize,
    /// The number of runs of the programs. Each run has its own files.
    generation: usize,
}

impl<'a> Trial<'a> {
    /// Prepares the cases.
    pub fn new(machine: &'a mut Machine, suspends: usize) -> Self {
        Self { machine, suspends, generation: 0 }
    }

    /// Runs all cases, with the given numbers of reboots and resets. After a failure, starts the
    /// machine again.
    pub fn run(&mut self, reboots: usize, resets: usize) -> Result<Tally> {
        type Case<'a> = fn(&mut Trial<'a>) -> Result<String>;
        let mut cases: Vec<(&str, Case<'a>)> = vec![
            ("suspend to RAM", |trial| trial.suspend(Sleep::ToRam)),
            ("suspend to idle", |trial| trial.suspend(Sleep::ToIdle)),
            ("suspend under load", Self::suspend_under_load),
        ];
        cases.extend((0..reboots).map(|_| ("reboot", Self::reboot as Case<'a>)));
        cases.extend((0..resets).map(|_| ("reset", Self::reset as Case<'a>)));
        let mut tally = Tally::default();
        for (name, case) in cases {
            match case(self) {
                Ok(counts) => {
                    println!("vm: {name}: {counts}");
                    tally += Tally::pass();
                }
                Err(error) => {
                    println!("vm: {name}: FAILED: {error:#}");
                    tally += Tally::fail(format!("vm[{name}]: {error:#}"));
                    if process::interrupted() {
                        break;
                    }
                    self.machine.reset()?;
                    self.machine.wait_until_ready()?;
                }
            }
        }
        Ok(tally)
    }

    /// Suspends several times. The programs are frozen first, as systemd does since version 256 for
    /// the sessions of users.
    fn suspend(&mut self, sleep: Sleep) -> Result<String> {
        let daemons = self.start()?;
        let reported = self.machine.suspensions;
        for number in 1..=self.suspends {
            let said = self.suspend_once(sleep, " freeze")?;
            ensure!(said == "slept", "suspend {number} was {said}");
            thread::sleep(Duration::from_millis(500));
        }
        let reported = self.machine.suspensions - reported;
        if sleep == Sleep::ToRam {
            ensure!(reported == self.suspends, "QEMU reported {reported} suspends");
        }
        let operations = self.stop(&daemons)?;
        Ok(format!("{0} of {0} suspends; {operations}", self.suspends))
    }

    /// Suspends while the programs are running. The kernel can't freeze a program that waits for a
    /// frozen daemon. It then aborts the suspend, and all programs must continue.
    fn suspend_under_load(&mut self) -> Result<String> {
        let daemons = self.start()?;
        let mut slept = 0;
        for _ in 0..ATTEMPTS {
            slept += usize::from(self.suspend_once(Sleep::ToRam, "")? == "slept");
            thread::sleep(Duration::from_millis(500));
        }
        let operations = self.stop(&daemons)?;
        let aborted = ATTEMPTS - slept;
        Ok(format!("{ATTEMPTS} attempts, {slept} succeeded, {aborted} aborted; {operations}"))
    }

    /// Reboots in an orderly way. Closed and synced files and the image must be intact.
    fn reboot(&mut self) -> Result<String> {
        self.start()?;
        self.wait_until_acknowledged()?;
        for stack in STACKS {
            self.machine.run(&format!("cp /srv/static /srv/{stack}/closed"))?;
        }
        let shown = self.machine.console()?.len();
        let time = self.machine.reboot()?;
        let console = self.machine.console()?.split_off(shown);
        ensure!(time < SHUTDOWN_MAX, "the shutdown took {} s", time.as_secs());
        let failed = console.lines().find(|line| is_failure(line));
        ensure!(failed.is_none(), "during the shutdown: {}", failed.unwrap_or_default());
        self.machine.wait_until_ready()?;
        let acknowledged = self.check()?;
        self.machine.run(
            "for stack in null zstd ext2; do cmp /srv/static /srv/$stack/closed || exit 1; done",
        )?;
        let image = self.machine.run("cat /run/trial/image /run/trial/image-n")?;
        ensure!(image.starts_with("0 0\n"), "the image is not clean: {image}");
        let warned = "! journalctl --boot --unit fslab@ext2 | grep 'not cleanly'";
        self.machine.run(warned).with_context(|| console)?;
        Ok(format!("{:.1} s until the reset; {acknowledged}", time.as_secs_f64()))
    }

    /// Resets the machine while programs work. Only synced data must be intact, after e2fsck has
    /// repaired the image.
    fn reset(&mut self) -> Result<String> {
        self.start()?;
        self.wait_until_acknowledged()?;
        self.machine.reset()?;
        self.machine.wait_until_ready()?;
        let acknowledged = self.check()?;
        let image = self.machine.run("cat /run/trial/image")?;
        let [before, after] = image.split_whitespace().collect::<Vec<_>>()[..] else {
            bail!("the image was not checked: {image}");
        };
        ensure!(after == "0", "e2fsck did not repair the image: code {after}");
        Ok(format!("{acknowledged}; e2fsck before the repair: code {before}"))
    }

    fn suspend_once(&mut self, sleep: Sleep, freeze: &str) -> Result<String> {
        let command = format!("sh {SCRIPTS}/suspend.sh {}{freeze}", sleep.state());
        Ok(self.machine.run_asleep(&command, Some(sleep))?.trim().to_owned())
    }

    /// Starts the programs. Returns the process numbers of supervisors and daemons.
    fn start(&mut self) -> Result<String> {
        self.generation += 1;
        self.machine.run(&format!("sh {SCRIPTS}/start.sh {}", self.generation))?;
        self.machine.run(&format!("sh {SCRIPTS}/daemons.sh"))
    }

    /// Ends the programs and checks their files and the daemons. Returns the counts of operations.
    fn stop(&mut self, daemons: &str) -> Result<String> {
        let now = self.machine.run(&format!("sh {SCRIPTS}/daemons.sh"))?;
        ensure!(now == daemons, "the daemons were {}, and are {}", daemons.trim(), now.trim());
        let counts = self.machine.run(&format!("sh {SCRIPTS}/stop.sh {}", self.generation))?;
        let numbers = counts.lines().filter_map(|line| line.rsplit(' ').next()?.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let programs = STACKS.len() * PROGRAMS_ON_EACH;
        ensure!(numbers.len() == programs, "{programs} programs printed {counts}");
        ensure!(numbers.iter().all(|number| *number > 1), "a program did nothing: {counts}");
        let operations: u64 = numbers.iter().sum();
        Ok(format!("{operations} operations of {programs} programs without errors, no death"))
    }

    /// Checks the mounts and the synced files after a start. Returns the count of synced
    /// operations.
    fn check(&mut self) -> Result<String> {
        let mounted = self.machine.run("findmnt --noheadings -o TARGET -t fuse.fslab | sort")?;
        let mounted: Vec<&str> = mounted.lines().map(str::trim).collect();
        ensure!(mounted == ["/srv/ext2", "/srv/null", "/srv/zstd"], "mounted: {mounted:?}");
        let numbers = self.acknowledged()?;
        for stack in STACKS {
            let number = |program: &str| {
                numbers.get(&(stack.to_owned(), program.to_owned())).copied().unwrap_or_default()
            };
            let (appended, named) = (number(PROGRAMS[0]), number(PROGRAMS[1]));
            let generation = self.generation;
            let arguments = format!("{stack} {generation} {appended} {named}");
            self.machine.run(&format!("perl {SCRIPTS}/check.pl {arguments}"))?;
        }
        let total: u64 = numbers.values().sum();
        Ok(format!("{total} synced operations on {} mounts are there", STACKS.len()))
    }

    fn acknowledged(&self) -> Result<Numbers> {
        Ok(last_numbers(&self.machine.acknowledged()?, self.generation))
    }

    fn wait_until_acknowledged(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            let text = self.machine.acknowledged()?;
            let count = |stack: &str, program: &str| {
                let begin = format!("{} {stack} {program} ", self.generation);
                text.lines().filter(|line| line.starts_with(&begin)).count()
            };
            let is_enough = |stack: &&str| {
                PROGRAMS.iter().all(|program| count(stack, program) >= ACKNOWLEDGED_MIN)
            };
            if STACKS.iter().all(is_enough) {
                return Ok(());
            }
            ensure!(!process::interrupted(), "interrupted");
            if start.elapsed() > PATIENCE {
                let errors = self.machine.run("cat /run/trial/errors || true")?;
                bail!("the programs do not proceed: {errors}");
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Returns whether a line of the console reports that a unit failed or reached its time limit.
fn is_failure(line: &str) -> bool {
    ["FAILED", " TIME ", "timed out", "Failed unmounting"].iter().any(|sign| line.contains(sign))
}

/// Returns the last number of each stack and program in a run. A line that was cut off by a reset
/// is ignored.
fn last_numbers(text: &str, generation: usize) -> Numbers {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut numbers = Numbers::new();
    for line in whole.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [run, stack, program, number] = words[..] else { continue };
        let (Ok(run), Ok(number)) = (run.parse::<usize>(), number.parse()) else { continue };
        if run == generation && STACKS.contains(&stack) && PROGRAMS.contains(&program) {
            numbers.insert((stack.to_owned(), program.to_owned()), number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::last_numbers;

    #[test]
    fn last_acknowledged_number_of_the_run_counts() {
        let text = "1 null append 80\n2 null append 8\n2 null append 16\n2 zstd names 3\n\
                    2 zstd na\n2 null append 24";
        let numbers = last_numbers(text, 2);
        let of = |stack: &str, program: &str| numbers.get(&(stack.into(), program.into()));
        assert_eq!(of("null", "append"), Some(&16));
        assert_eq!(of("zstd", "names"), Some(&3));
        assert_eq!(of("ext2", "append"), None);
    }
}
