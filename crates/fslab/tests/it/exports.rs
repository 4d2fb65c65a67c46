//! Tests kept mounts that are exported by NFS-Ganesha and by Samba.
//!
//! Servers and clients run in separate namespaces. So they use no ports of the machine, and they
//! are killed when the first process of the namespace ends.

use std::process::Command;

use fslab_sys::make_file_system::Kind;
use fslab_vfs_testing::skip::skip;

use crate::support::{Place, program, require_mounting};
use crate::tiering::Ground;

/// Mounts $LOWER on $POINT, and defines functions that the tests of both servers use.
const BEGIN: &str = r#"
ip link set lo up
mount -t tmpfs -o mode=755 none /run
cd "$SCRATCH"
within() { for _ in $(seq 300); do ! "$@" > /dev/null 2>&1 || return 0; sleep 0.1; done; "$@"; }
drop_caches() { sync; echo 3 > /proc/sys/vm/drop_caches; }
kill_daemon() { kill -9 "$(pgrep -P "$(pgrep -o -f " $POINT\$")")"; }
"$FSLAB" mount -q -o keep -l zstd "$LOWER" "$POINT"
head -c 20000000 /dev/urandom > data
"#;

/// Exports the mount by NFS-Ganesha, which opens files by their handles, like the kernel's server.
const NFS: &str = r#"
mkdir /run/ganesha recovery
cat > ganesha.conf << EOF
NFS_CORE_PARAM { Protocols = 3; Enable_NLM = false; Enable_RQUOTA = false; }
NFSV4 { Graceless = true; RecoveryRoot = "$SCRATCH/recovery"; }
EXPORT {
    Export_Id = 1; Path = "$POINT"; Pseudo = /export;
    Access_Type = RW; Squash = none; FSAL { Name = VFS; }
}
EOF
url="nfs://127.0.0.1$POINT"
mkdir -p "$POINT/outer/inner"
rpcbind
ganesha.nfsd -F -f ganesha.conf -L "$SCRATCH/log" -p /run/server &
within nfs-ls "$url"
nfs-cp data "$url/outer/inner/data" > /dev/null
for round in 1 2 3; do
    drop_caches
    nfs-ls "$url/outer/inner" | grep -q ' data$'
    nfs-cat "$url/outer/inner/data" | cmp - data
done
echo "files survive dropped caches"
for round in 1 2 3; do
    (sleep 0.02; kill_daemon) &
    killer=$!
    nfs-cp data "$url/outer/$round" > /dev/null
    wait "$killer"
    nfs-cat "$url/outer/$round" | cmp - data
    cmp "$POINT/outer/$round" data
done
echo "kills cause no errors"
kill "$(cat /run/server)"
within "$FSLAB" umount "$POINT"
"#;

const SAMBA: &str = r#"
mkdir samba
cat > smb.conf << EOF
[global]
server role = standalone server
map to guest = Bad User
guest account = root
disable netbios = yes
disable spoolss = yes
load printers = no
ea support = yes
private dir = $SCRATCH/samba
lock directory = $SCRATCH/samba
state directory = $SCRATCH/samba
cache directory = $SCRATCH/samba
pid directory = $SCRATCH/samba
ncalrpc dir = $SCRATCH/samba
[share]
path = $POINT
guest ok = yes
read only = no
EOF
client() {
    smbclient -s smb.conf -N //127.0.0.1/share -c "$1" > said 2>&1 || { cat said; exit 1; }
}
smbd -F -s "$SCRATCH/smb.conf" -l "$SCRATCH/samba" < /dev/null &
server=$!
within smbclient -s smb.conf -N //127.0.0.1/share -c ls
client 'mkdir outer; put data outer\data; setea outer\data note written'
drop_caches
client 'rename outer\data outer\renamed; get outer\renamed got'
cmp got data
getfattr --absolute-names --only-values -n user.note "$POINT/outer/renamed"
echo " survives dropped caches"
for round in 1 2 3; do
    (sleep 0.05; kill_daemon) &
    killer=$!
    client "put data outer\\$round; get outer\\$round got"
    wait "$killer"
    cmp got data
    cmp "$POINT/outer/$round" data
done
echo "kills cause no errors"
kill "$server"
within "$FSLAB" umount "$POINT"
"#;

/// Runs a script as root in separate namespaces. Returns its standard output, or `None` if a
/// program is missing.
#[track_caller]
fn exported(test: &str, programs: &[&str], script: &str) -> Option<String> {
    if let Some(missing) = programs.iter().find(|name| program(name).is_none()) {
        skip(test, &format!("no {missing}; `cargo xtask setup` installs it"));
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root, so it can't run a server in separate namespaces");
        return None;
    }
    // Mounts have file handles only if their lower directory is the root of a file system.
    let (ground, place) = (Ground::new(Kind::Ext4), Place::in_memory());
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec"])
        .arg(format!("{BEGIN}{script}"))
        .env("FSLAB", env!("CARGO_BIN_EXE_fslab"))
        .env("LOWER", ground.root())
        .env("POINT", &place.point)
        .env("SCRATCH", place.point.parent().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}{errors}", output.status);
    Some(said)
}

#[test]
fn nfs_clients_notice_neither_dropped_caches_nor_killed_daemons() {
    require_mounting!();
    let test = "exports::nfs_clients_notice_neither_dropped_caches_nor_killed_daemons";
    let programs = ["ganesha.nfsd", "rpcbind", "nfs-cp", "nfs-ls", "nfs-cat", "ip", "pgrep"];
    if let Some(said) = exported(test, &programs, NFS) {
        assert_eq!(said, "files survive dropped caches\nkills cause no errors\n");
    }
}

#[test]
fn samba_clients_notice_neither_dropped_caches_nor_killed_daemons() {
    require_mounting!();
    let test = "exports::samba_clients_notice_neither_dropped_caches_nor_killed_daemons";
    let programs = ["smbd", "smbclient", "getfattr", "ip", "pgrep"];
    if let Some(said) = exported(test, &programs, SAMBA) {
        assert_eq!(said, "written survives dropped caches\nkills cause no errors\n");
    }
}
