//! The examples, in the order of the command tree.

use super::{Example, Examples};

const fn example(line: &'static str, what: &'static str) -> Example {
    Example { line, what }
}

/// The examples of every command.
pub const EXAMPLES: &[Examples] = &[
    Examples {
        command: "mount",
        examples: &[
            example(
                "fslab mount -l zstd /srv/stored /srv/data",
                "Compress everything written under /srv/data",
            ),
            example(
                "fslab mount -l stats -l null /srv/data /srv/data",
                "Mount a directory over itself, and count the operations on it",
            ),
            example(
                "fslab mount --dry-run -l gzip:level=9 /srv/stored /srv/data",
                "Check layers, options and directories without mounting",
            ),
            example("fslab mount ext2:disk.ext2 /mnt", "Mount an ext2 image in user space"),
        ],
    },
    Examples {
        command: "umount",
        examples: &[
            example("fslab umount /srv/data", "Unmount, and wait until all data is written back"),
            example("fslab umount --lazy /srv/data", "Unmount a file system that is in use"),
        ],
    },
    Examples {
        command: "upgrade",
        examples: &[example(
            "fslab upgrade /srv/data",
            "Replace the daemon of a mount by the installed version",
        )],
    },
    Examples {
        command: "status",
        examples: &[
            example("fslab status", "List the mounts, their layers and their health"),
            example("fslab status --json /srv/data", "Print all details of one mount"),
        ],
    },
    Examples {
        command: "doctor",
        examples: &[
            example("fslab doctor", "Show the supported and missing features of this machine"),
            example("fslab doctor --json", "Print the features as JSON"),
        ],
    },
    Examples {
        command: "stats",
        examples: &[
            example("fslab stats /srv/data", "Show the operations counted since the mount"),
            example("fslab stats --watch 1s /srv/data", "Show the operations of each second"),
            example(
                "fslab stats --listen 127.0.0.1:9730 /srv/data",
                "Serve the counters for Prometheus",
            ),
        ],
    },
    Examples {
        command: "trace show",
        examples: &[
            example("fslab trace show --failed day.trace", "Show the operations that failed"),
            example(
                "fslab trace show --operation read --slower-than 10ms day.trace",
                "Show the slow reads",
            ),
        ],
    },
    Examples {
        command: "trace replay",
        examples: &[example(
            "fslab trace replay --populate day.trace mem:",
            "Repeat a recorded day on a file system in memory",
        )],
    },
    Examples {
        command: "age snapshot",
        examples: &[
            example("fslab age snapshot /home home-1.parquet", "Record the files of a tree"),
            example(
                "fslab age snapshot --repo --every week ~/linux snapshots",
                "Record each week of a git history",
            ),
        ],
    },
    Examples {
        command: "age diff",
        examples: &[example(
            "fslab age diff --list home-1.parquet home-2.parquet",
            "List the files that changed between two snapshots",
        )],
    },
    Examples {
        command: "age derive",
        examples: &[example(
            "fslab age derive --volume 4GiB -o days.parquet snapshots",
            "Make a workload from a directory of snapshots",
        )],
    },
    Examples {
        command: "age profile",
        examples: &[
            example("fslab age profile --list", "List the profiles and their values"),
            example(
                "fslab age profile developer --volume 1GiB --days 100 -o days.parquet",
                "Make a workload of 100 days of a developer's work",
            ),
        ],
    },
    Examples {
        command: "age show",
        examples: &[example(
            "fslab age show --operations 20 days.parquet",
            "Print the header and the first 20 operations of a workload",
        )],
    },
    Examples {
        command: "age simulate",
        examples: &[
            example(
                "fslab age simulate days.parquet",
                "Compare the allocation policies on a workload",
            ),
            example(
                "fslab age simulate --profile smith97 --paper",
                "Repeat the 1997 experiment, and print the paper's figures too",
            ),
        ],
    },
    Examples {
        command: "age replay",
        examples: &[example(
            "fslab age replay --checkpoint days.checkpoint days.parquet /mnt/fresh",
            "Age a mounted file system; run the command again to resume",
        )],
    },
    Examples {
        command: "age score",
        examples: &[
            example("fslab age score /home", "Show how contiguous the files of a tree are"),
            example(
                "fslab age score --map map.svg disk.ext2",
                "Draw a map of the blocks of all files",
            ),
        ],
    },
    Examples {
        command: "age chart",
        examples: &[example(
            "fslab age chart -o scores.svg ext4=ext4.json xfs=xfs.json",
            "Draw the scores of two replays in one chart",
        )],
    },
    Examples {
        command: "age image make",
        examples: &[example(
            "sudo fslab age image make --filesystem ext4 -o aged.zst days.parquet",
            "Make an aged ext4 image for comparisons",
        )],
    },
    Examples {
        command: "age image pack",
        examples: &[example(
            "fslab age image pack --workload days.parquet -o aged.zst aged.img",
            "Compress an image that you aged yourself",
        )],
    },
    Examples {
        command: "age image unpack",
        examples: &[example("fslab age image unpack aged.zst aged.img", "Unpack an aged image")],
    },
    Examples {
        command: "age image info",
        examples: &[example(
            "fslab age image info aged.zst",
            "Show the workload and the file system of a packed image",
        )],
    },
    Examples {
        command: "age verify",
        examples: &[example(
            "fslab age verify home-2.parquet aged.parquet",
            "Compare an aged volume with the real one",
        )],
    },
    Examples {
        command: "age verify-method",
        examples: &[example(
            "sudo fslab age verify-method --rounds 20",
            "Test the ageing method on ext4 in 20 rounds",
        )],
    },
    Examples {
        command: "dataset create",
        examples: &[
            example(
                "fslab dataset create -o home-1 home-1.parquet",
                "Convert a snapshot of `fslab age snapshot`",
            ),
            example(
                "fslab dataset create --parts 64 -o monday /var/tmp/trace",
                "Convert a recorded trace; each of 64 files can go to another machine",
            ),
        ],
    },
    Examples {
        command: "dataset check",
        examples: &[example("fslab dataset check home-1", "Read and verify all files")],
    },
    Examples {
        command: "dataset show",
        examples: &[example("fslab dataset show home-1", "Show the kind, rows and parts")],
    },
    Examples {
        command: "compare",
        examples: &[
            example(
                "sudo fslab compare --quick --out report",
                "Compare ext4, XFS, Btrfs and a FUSE mount in three minutes",
            ),
            example(
                "sudo fslab compare dmfs",
                "Run a built-in plan; `fslab list plans` lists them",
            ),
            example("sudo fslab compare my-plan.toml", "Run your own plan"),
            example("sudo fslab compare -- make -j2", "Time a command on each file system"),
        ],
    },
    Examples {
        command: "campaign new",
        examples: &[
            example(
                "fslab campaign new my-plan.toml /shared/run1",
                "Create a campaign from a plan",
            ),
            example(
                "fslab campaign new quick /shared/run2 --rounds 20 --seed 7",
                "Create a campaign of 20 rounds from a built-in plan",
            ),
        ],
    },
    Examples {
        command: "campaign run",
        examples: &[
            example(
                "sudo fslab campaign run /shared/run1 --share 2/8",
                "Run the remaining blocks of share 2 of 8 on this host",
            ),
            example(
                "sudo fslab campaign run /shared/run1 --share 1/1 --retry",
                "Repeat the blocks in which a measurement failed or was disturbed",
            ),
        ],
    },
    Examples {
        command: "campaign status",
        examples: &[
            example(
                "fslab campaign status /shared/run1",
                "List the measurements that are not done",
            ),
            example("fslab campaign status --json /shared/run1", "Print the status as JSON"),
        ],
    },
    Examples {
        command: "campaign report",
        examples: &[
            example(
                "fslab campaign report /shared/run1 --html page.html",
                "Print the ratios of each machine and of all, and write a report",
            ),
            example(
                "fslab campaign report /shared/run1 --fail-if 'elapsed slower 5%'",
                "Fail if the measurements show that a row is more than 5 % slower",
            ),
        ],
    },
    Examples {
        command: "campaign submit",
        examples: &[
            example(
                "sudo fslab campaign submit /shared/run1",
                "Run the whole campaign on this machine",
            ),
            example(
                "fslab campaign submit /shared/run1 --slurm --shares 16 --dry-run",
                "Print the batch script for Slurm",
            ),
            example(
                "fslab campaign submit /shared/run1 --slurm --licences disk:1",
                "Submit eight shares; only one runs at a time in the whole cluster",
            ),
        ],
    },
    Examples {
        command: "report",
        examples: &[
            example(
                "fslab report --html page.html report/samples.jsonl",
                "Write the HTML report of a comparison again",
            ),
            example(
                "fslab report --fail-if 'create.elapsed slower 5%' report/samples.jsonl",
                "Fail if the measurements show that a row is more than 5 % slower",
            ),
        ],
    },
    Examples {
        command: "reproduce",
        examples: &[
            example("fslab reproduce --dry-run", "List the plans and the claims"),
            example(
                "sudo fslab reproduce all --quick --out papers",
                "Repeat the measurements of all papers in ten minutes",
            ),
        ],
    },
    Examples {
        command: "ext2 mkfs",
        examples: &[
            example("fslab ext2 mkfs disk.ext2 64MiB", "Make an image of 64 MiB"),
            example(
                "fslab ext2 mkfs --dry-run --block-size 1024 disk.ext2 64MiB",
                "Show the layout without writing anything",
            ),
        ],
    },
    Examples {
        command: "ext2 info",
        examples: &[example("fslab ext2 info disk.ext2", "Show parameters and free space")],
    },
    Examples {
        command: "ext2 ls",
        examples: &[example("fslab ext2 ls --long disk.ext2 /etc", "List a directory of an image")],
    },
    Examples {
        command: "ext2 cat",
        examples: &[example("fslab ext2 cat disk.ext2 /etc/fstab", "Print a file of an image")],
    },
    Examples {
        command: "ext2 stat",
        examples: &[example(
            "fslab ext2 stat disk.ext2 /etc/fstab",
            "Show the inode of a file and its blocks",
        )],
    },
    Examples {
        command: "ext2 put",
        examples: &[example(
            "fslab ext2 put disk.ext2 notes.txt /notes.txt",
            "Copy a file into an image",
        )],
    },
    Examples {
        command: "ext2 get",
        examples: &[example(
            "fslab ext2 get disk.ext2 /notes.txt notes.txt",
            "Copy a file out of an image",
        )],
    },
    Examples {
        command: "ext2 import",
        examples: &[
            example("fslab ext2 import disk.ext2 /usr/share/doc", "Copy a tree into an image"),
            example("fslab ext2 import disk.ext2 root.tar", "Unpack a tar archive into an image"),
        ],
    },
    Examples {
        command: "ext2 export",
        examples: &[example(
            "fslab ext2 export disk.ext2 out /usr",
            "Copy a directory of an image to the host",
        )],
    },
    Examples {
        command: "ext2 check",
        examples: &[example("fslab ext2 check disk.ext2", "Check an image without writing to it")],
    },
    Examples {
        command: "ext2 repair",
        examples: &[
            example("fslab ext2 repair --dry-run disk.ext2", "Show the planned repairs"),
            example("fslab ext2 repair disk.ext2", "Repair an image that is not mounted"),
        ],
    },
    Examples {
        command: "ext2 dx",
        examples: &[example("fslab ext2 dx disk.ext2 /mail", "Print the HTree of a directory")],
    },
    Examples {
        command: "ext2 capacity",
        examples: &[example(
            "fslab ext2 capacity --levels 1 --hash legacy",
            "Count the names that fit under one index block",
        )],
    },
    Examples {
        command: "ext2 layout",
        examples: &[example(
            "fslab ext2 layout --svg layout.svg disk.ext2",
            "Draw a map of the blocks of all files in an image",
        )],
    },
    Examples {
        command: "ext2 undelete",
        examples: &[
            example("fslab ext2 undelete disk.ext2", "List deleted files that can be recovered"),
            example("fslab ext2 undelete disk.ext2 12 notes.txt", "Recover the file of inode 12"),
        ],
    },
    Examples {
        command: "ext2 resize",
        examples: &[example("fslab ext2 resize disk.ext2 128MiB", "Grow or shrink an image")],
    },
    Examples {
        command: "ext2 tune",
        examples: &[example("fslab ext2 tune --label backup disk.ext2", "Change the label")],
    },
    Examples {
        command: "sca stat",
        examples: &[
            example("fslab sca stat /srv/stored", "Show how well a directory compresses"),
            example("fslab sca stat -v /srv/stored/log", "Show the figures of one stored file"),
        ],
    },
    Examples {
        command: "sca check",
        examples: &[example(
            "fslab sca check /srv/stored",
            "Check the structure of all stored files, without reading their content",
        )],
    },
    Examples {
        command: "sca verify",
        examples: &[example(
            "fslab sca verify /srv/stored",
            "Read all stored files and compare them with their checksums",
        )],
    },
    Examples {
        command: "sca cat",
        examples: &[example("fslab sca cat /srv/stored/log", "Print the content of a stored file")],
    },
    Examples {
        command: "sca dump",
        examples: &[example("fslab sca dump /srv/stored/log", "List the frames of a stored file")],
    },
    Examples {
        command: "sca compact",
        examples: &[
            example(
                "fslab sca compact --dry-run /srv/stored",
                "Show how much space would be freed",
            ),
            example("fslab sca compact /srv/stored", "Free the space of overwritten data"),
        ],
    },
    Examples {
        command: "sca encode",
        examples: &[
            example("fslab sca encode --dry-run -l zstd ~/data", "Estimate the compression ratio"),
            example("fslab sca encode -l zstd ~/data", "Compress a directory in place"),
        ],
    },
    Examples {
        command: "sca decode",
        examples: &[example("fslab sca decode ~/data", "Decode a directory in place")],
    },
    Examples {
        command: "sca recovery",
        examples: &[example(
            "fslab sca recovery -l zstd --size 256MiB",
            "Measure how long it takes to recover a file after a crash",
        )],
    },
    Examples {
        command: "sca repair",
        examples: &[example(
            "fslab sca repair -o saved /srv/stored/damaged",
            "Save the readable content of a damaged file",
        )],
    },
    Examples {
        command: "tier init",
        examples: &[example(
            "fslab tier init --archive /mnt/disk2/archive --home ~/photos.tier ~/photos",
            "Turn a directory into a tier, with an archive on another disk",
        )],
    },
    Examples {
        command: "tier attach",
        examples: &[example(
            "fslab tier attach ~/photos /mnt/disk3/archive",
            "Add a second archive",
        )],
    },
    Examples {
        command: "tier retire",
        examples: &[example(
            "fslab tier retire ~/photos /mnt/disk2/archive",
            "Send no new copies to an archive",
        )],
    },
    Examples {
        command: "tier drain",
        examples: &[example(
            "fslab tier drain ~/photos /mnt/disk2/archive",
            "Copy everything in one archive to the other archives",
        )],
    },
    Examples {
        command: "tier detach",
        examples: &[example(
            "fslab tier detach ~/photos /mnt/disk2/archive",
            "Stop using an archive that was drained",
        )],
    },
    Examples {
        command: "tier key",
        examples: &[example("fslab tier key ~/photos.key", "Make an encryption key")],
    },
    Examples {
        command: "tier rebuild",
        examples: &[example(
            "fslab tier rebuild --archive /mnt/disk2/archive --home ~/new.tier ~/photos",
            "Restore a tree from its archive after the disk was lost",
        )],
    },
    Examples {
        command: "tier archive",
        examples: &[example(
            "fslab tier archive ~/photos/2024",
            "Copy a directory to the archives",
        )],
    },
    Examples {
        command: "tier release",
        examples: &[
            example(
                "fslab tier release --dry-run ~/photos/2024",
                "Show which files would be released, and the space that this frees",
            ),
            example("fslab tier release ~/photos/2024", "Free the space of archived files"),
        ],
    },
    Examples {
        command: "tier recall",
        examples: &[
            example("fslab tier recall ~/photos/2024", "Recall a directory"),
            example(
                "fslab tier recall --plan --prices prices.toml ~/photos",
                "Print the requests, bytes, time and cost of recalling all files",
            ),
        ],
    },
    Examples {
        command: "tier wait",
        examples: &[example("fslab tier wait ~/photos/2024", "Wait for running recalls")],
    },
    Examples {
        command: "tier state",
        examples: &[example(
            "fslab tier state --recursive ~/photos",
            "Show which files are offline",
        )],
    },
    Examples {
        command: "tier find",
        examples: &[
            example(
                "fslab tier find --larger 1GiB --unused 90d --state archived ~/photos",
                "Find large files that are archived and not used, but still local",
            ),
            example("fslab tier find --pinned ~/photos", "Find the pinned files"),
        ],
    },
    Examples {
        command: "tier export",
        examples: &[example(
            "fslab tier export -o photos-today ~/photos",
            "Write all files with their states and copies, for SQL engines",
        )],
    },
    Examples {
        command: "tier du",
        examples: &[
            example(
                "fslab tier du ~/photos",
                "Show how many bytes are resident, and how many are archived",
            ),
            example("fslab tier du --by user ~/photos", "Show the sums of each user"),
            example(
                "fslab tier du --by age --state resident --state changed ~/photos",
                "Show the ages of the files that are not archived, or changed since",
            ),
        ],
    },
    Examples {
        command: "tier queue",
        examples: &[example("fslab tier queue ~/photos", "List the waiting recalls")],
    },
    Examples {
        command: "tier cancel",
        examples: &[example("fslab tier cancel ~/photos/2024", "Cancel waiting recalls")],
    },
    Examples {
        command: "tier pin",
        examples: &[example("fslab tier pin ~/photos/best", "Never release these files")],
    },
    Examples {
        command: "tier unpin",
        examples: &[example(
            "fslab tier unpin ~/photos/best",
            "Allow the release of these files again",
        )],
    },
    Examples {
        command: "tier versions",
        examples: &[example("fslab tier versions ~/photos/cat.jpg", "List the archived versions")],
    },
    Examples {
        command: "tier cat",
        examples: &[example(
            "fslab tier cat 00112233445566778899aabbccddeeff ~/photos > earlier.jpg",
            "Read a version that `fslab tier versions` shows",
        )],
    },
    Examples {
        command: "tier undelete",
        examples: &[
            example(
                "fslab tier undelete 00112233445566778899aabbccddeeff ~/photos/cat.jpg",
                "Restore a version that `fslab tier versions` shows",
            ),
            example(
                "fslab tier undelete --recursive ~/photos/2024",
                "Restore the files removed from a directory",
            ),
        ],
    },
    Examples {
        command: "tier policy",
        examples: &[
            example(
                "fslab tier policy --dry-run ~/photos",
                "Show the planned actions of the policy",
            ),
            example("fslab tier policy ~/photos", "Archive and release files by the policy"),
        ],
    },
    Examples {
        command: "tier tree",
        examples: &[example(
            "fslab tier tree ~/photos",
            "Archive all names and attributes for a later rebuild",
        )],
    },
    Examples {
        command: "tier scan",
        examples: &[example("fslab tier scan ~/photos", "Rebuild the catalogue")],
    },
    Examples {
        command: "tier scrub",
        examples: &[example(
            "fslab tier scrub --rate 50MiB ~/photos",
            "Verify all copies at 50 MiB/s",
        )],
    },
    Examples {
        command: "tier archives",
        examples: &[example("fslab tier archives ~/photos", "List the archives of a tier")],
    },
    Examples {
        command: "tier expire",
        examples: &[
            example("fslab tier expire --dry-run ~/photos", "Show which versions would be deleted"),
            example("fslab tier expire ~/photos", "Delete versions past their retention time"),
        ],
    },
    Examples {
        command: "sql",
        examples: &[
            example(
                "fslab sql --named top-users monday",
                "Print the users with the most bytes in a data set of a snapshot",
            ),
            example(
                "fslab sql --named diff before=monday after=tuesday",
                "Count the changes between two snapshots",
            ),
            example(
                "fslab sql 'SELECT kind, count(*) FROM snapshot GROUP BY kind' monday",
                "Answer a question of your own",
            ),
            example("fslab sql --list", "List the named queries"),
        ],
    },
    Examples {
        command: "probe",
        examples: &[
            example("fslab probe /mnt", "Determine the attributes of the file system on /mnt"),
            example(
                "fslab probe --only block-size --explain .",
                "Explain how the block size was found",
            ),
            example("sudo fslab probe --verify-matrix", "Test `fslab probe` on many file systems"),
        ],
    },
    Examples {
        command: "list",
        examples: &[
            example("fslab list", "List layers, workloads, plans and all other named items"),
            example("fslab list zstd", "Show the options of a layer"),
            example("fslab list plans", "List the built-in plans"),
        ],
    },
    Examples {
        command: "completions",
        examples: &[example(
            "fslab completions bash > ~/.local/share/bash-completion/completions/fslab",
            "Install the completions of bash",
        )],
    },
    Examples {
        command: "man",
        examples: &[example("fslab man man1", "Write the man pages to the directory man1")],
    },
];
