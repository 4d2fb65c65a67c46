//! Blocks with one copy in cold storage, and another copy in an archive that is unavailable for a
//! while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fslab_tier::Settings;
use fslab_tier::command::{Command, Event};
use fslab_tier::queue::Class;
use fslab_vfs::Ino;

use crate::support::{MIB, noise, problems, until};
use crate::unavailable::{Late, told, usual, waits, while_it_waits};

impl Late {
    /// Sets whether the second archive has its containers in cold storage.
    fn set_cold(&self, is_cold: bool) {
        self.bench.archives[1].faults().is_cold.store(is_cold, Ordering::SeqCst);
    }

    /// Returns how often the second archive was asked to stage a container.
    fn stagings(&self) -> usize {
        self.bench.archives[1].faults().staged.lock().len()
    }
}

/// A tier with a `file` that has copies in both archives. The first archive is unavailable, and the
/// second one has its copy in cold storage. The tests turn the clock during calls, so calls have no
/// time limit.
fn late_with_a_cold_copy() -> (Late, Ino) {
    let mut ino = Ino::ROOT;
    let settings = Settings { copies: 2, call_limit: Duration::MAX, ..usual() };
    let late = Late::new(settings, |bench| {
        ino = bench.offline(&bench.client(), "file", &noise(1, MIB));
    });
    late.set_cold(true);
    (late, ino)
}

/// Makes the second archive readable if a test fails. Otherwise its reader would wait forever.
struct Thaws<'a>(&'a Late);

impl Drop for Thaws<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_cold(false);
            self.0.hands.turn(Duration::from_secs(60));
        }
    }
}

/// A short failure of the network must not lead to a paid restore. A long one must not delay the
/// restore forever.
#[test]
fn cold_copy_is_staged_if_the_other_archive_remains_unavailable() {
    let (late, ino) = late_with_a_cold_copy();
    let turn_until = |stagings| {
        until(|| {
            late.hands.turn(Duration::from_secs(1));
            late.stagings() >= stagings
        });
    };
    let read = while_it_waits(&late, ino, |_| {
        let _thaws = Thaws(&late);
        // Many requests for the same block do not shorten the wait.
        for _ in 0..20 {
            let queue = late.tier.queue();
            queue.list().iter().for_each(|recall| queue.promote(recall, Class::Waiting));
            until(|| waits(&late));
        }
        late.hands.turn(Duration::from_secs(59));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(late.stagings(), 0, "the other archive may soon be available again");
        for number in 1..4 {
            turn_until(number);
            until(|| waits(&late));
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(late.stagings(), number, "the clock stands still");
        }
        let queue = told(&late, &Command::Queue);
        let is_staging = |event: &Event| matches!(event, Event::Waiting { later: Some(_), .. });
        assert!(queue.iter().all(is_staging), "{queue:?}");
        late.set_cold(false);
        late.hands.turn(Duration::from_secs(60));
    });
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
}

/// The archive that is restoring the block is unavailable for a short time. Another restore, in the
/// other archive, would cost as much again.
#[test]
fn restore_continues_in_its_archive() {
    let (late, ino) = late_with_a_cold_copy();
    late.comes();
    let faults = |number: usize| late.bench.archives[number].faults();
    faults(0).is_cold.store(true, Ordering::SeqCst);
    let staged_in = |number| faults(number).staged.lock().len();
    let turn_until = |is_so: &dyn Fn() -> bool| {
        until(|| {
            late.hands.turn(Duration::from_secs(1));
            is_so()
        });
    };
    let set_gone = |is_gone: bool| {
        late.place.is_there.store(!is_gone, Ordering::SeqCst);
        faults(0).gone.store(is_gone, Ordering::SeqCst);
    };
    let read = while_it_waits(&late, ino, |_| {
        let _thaws = Thaws(&late);
        until(|| staged_in(0) == 1);
        set_gone(true);
        let before = faults(1).reads.load(Ordering::SeqCst);
        for _ in 0..5 {
            late.hands.turn(Duration::from_secs(10));
            until(|| waits(&late));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(faults(1).reads.load(Ordering::SeqCst) > before, "the recall was tried again");
        assert_eq!(staged_in(1), 0);
        set_gone(false);
        turn_until(&|| staged_in(0) > 1);
        assert_eq!(staged_in(1), 0);
        set_gone(true);
        turn_until(&|| staged_in(1) > 0);
        // From then on, the second archive continues, even if the first one is back.
        let before = staged_in(0);
        set_gone(false);
        late.comes();
        let again = staged_in(1) + 2;
        turn_until(&|| staged_in(1) >= again);
        assert_eq!(staged_in(0), before);
        late.set_cold(false);
        late.hands.turn(Duration::from_secs(60));
    });
    assert!(read == Ok(noise(1, MIB)), "{:?}", read.err());
}

/// Returns the problems that a recall of all files reports.
fn problems_of_recall(late: &Late) -> Vec<String> {
    let recall = Command::Recall { paths: vec![Vec::new()], range: None, rate: 0 };
    problems(told(late, &recall))
}

/// A command goes through many files quickly. If it staged copies during a short failure, each file
/// that it meets meanwhile would cost a restore.
#[test]
fn command_stages_nothing_if_an_archive_has_just_become_unavailable() {
    let (late, _) = late_with_a_cold_copy();
    late.comes();
    late.place.is_there.store(false, Ordering::SeqCst);
    late.bench.archives[0].faults().gone.store(true, Ordering::SeqCst);
    let expected = "file: a copy is in cold storage, and an archive with another copy is \
                    unavailable for now; recall the file again in a minute";
    for _ in 0..4 {
        assert_eq!(problems_of_recall(&late), [expected]);
        late.hands.turn(Duration::from_secs(15));
    }
    assert_eq!(late.stagings(), 0);
    let problems = problems_of_recall(&late);
    assert!(problems[0].starts_with("file: the archive is restoring it"), "{problems:?}");
}

#[test]
fn command_does_not_wait_for_an_archive_that_is_unavailable_from_the_start() {
    let (late, _) = late_with_a_cold_copy();
    let problems = problems_of_recall(&late);
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("file: the archive is restoring it"), "{problem}");
    assert_eq!(late.stagings(), 1);
}
