//! A server over memory without a kernel, and checks of its replies.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fslab_vfs::{
    Cancellation, Capacity, Errno, FileSystem, Ino, MemFs, Name, OpenMode, Request, WriteOptions,
};
use parking_lot::Mutex;
use zerocopy::FromZeros;

use super::script::decode;
#[cfg(test)]
use super::script::{BY_ROOT, Record};
use crate::decode::Incoming;
use crate::job::{Answer, Route};
use crate::kept::{KeptState, Records};
use crate::negotiate::{Granted, negotiate};
use crate::options::MountOptions;
use crate::protocol::flags::InitFlags;
use crate::protocol::opcode::Opcode;
use crate::protocol::request::{GetxattrIn, InitIn, ReadIn};
use crate::protocol::{MAJOR, MINOR_MAX};
use crate::reply_buffer::ReplyBuffer;
use crate::request_timeout::Limits;
use crate::server::Server;
use crate::transport::{ReadMode, Received, Transport};

/// Maximum size of the output buffer: that of the largest read and some extra.
const OUTPUT_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// Maximum number of requests processed in one conversation.
const REQUESTS_MAX: usize = 64;

/// Checks that a server over memory replies correctly to a conversation, which is encoded as
/// described in `script`.
///
/// # Panics
/// If a request panics, a reply has the wrong size, or the server uses too much memory.
pub fn check_conversation(bytes: &[u8]) {
    let (options, records) = decode(bytes);
    let writeback = options & 1 != 0;
    let mut subject = Subject::new(&MountOptions { writeback, ..MountOptions::default() });
    for record in records.iter().take(REQUESTS_MAX) {
        subject.check(&record.to_request());
    }
}

/// A server without a kernel.
pub(crate) struct Subject {
    pub server: Arc<Server>,
    #[cfg(test)]
    pub memory: Arc<MemFs>,
    #[cfg(test)]
    pub script: Arc<ScriptedChannel>,
    transport: Arc<dyn Transport>,
    output: ReplyBuffer,
}

impl Subject {
    /// A server over a file `a` with some bytes (inode 2, open as handle 1), a directory `d` (3)
    /// and a link `l` (4); the root is open as handle 2.
    pub fn new(options: &MountOptions) -> Self {
        Self::over(options, |memory| memory)
    }

    /// Like [`Self::new`], but serves the file system that `file_system` makes from the memory.
    pub fn over(
        options: &MountOptions,
        file_system: impl FnOnce(Arc<MemFs>) -> Arc<dyn FileSystem>,
    ) -> Self {
        let memory = Arc::new(MemFs::new(Capacity { bytes: 4 << 20, inodes: 32 }));
        populate(&memory);
        let script = Arc::new(ScriptedChannel::default());
        let transport: Arc<dyn Transport> = Arc::<ScriptedChannel>::clone(&script);
        let shared = file_system(Arc::clone(&memory));
        let granted = all_granted(options);
        let server =
            Server::new(shared, options.clone(), granted, Arc::clone(&transport), None, None);
        let (server, output) = (Arc::new(server), ReplyBuffer::default());
        Self {
            server,
            #[cfg(test)]
            memory,
            #[cfg(test)]
            script,
            transport,
            output,
        }
    }

    /// Answers a request by root about an inode, as on a mount.
    #[cfg(test)]
    pub fn ask(&mut self, opcode: Opcode, node: u8, rest: &[u8]) {
        let opcode = opcode as u8;
        let rest = rest.to_vec();
        self.serve(&Record { flags: BY_ROOT, opcode, node, extensions: 0, rest }.to_request());
    }

    /// Answers a request as on a mount.
    #[cfg(test)]
    pub fn serve(&mut self, request: &[u8]) {
        let incoming = Incoming::parse(request).unwrap();
        self.server.serve_alone(&self.transport, incoming, &mut self.output);
    }

    /// Performs a request and checks its reply. Panics are not caught.
    fn check(&mut self, request: &[u8]) {
        let Ok(incoming) = Incoming::parse(request) else { return };
        let Some(opcode) = Opcode::from_number(incoming.header.opcode) else { return };
        if opcode == Opcode::Interrupt {
            return self.server.interrupt(incoming);
        }
        let (transport, output) = (&self.transport, &mut self.output);
        let none = Cancellation::default();
        let route = Route { later: Some(transport), record: None, deferral: None };
        match self.server.respond(opcode, incoming, none, route, output) {
            Ok(Answer::Now) if opcode.has_no_reply() => {}
            Ok(Answer::Now) => check_reply(opcode, incoming, output.payload().len()),
            Ok(Answer::Later) => assert_eq!(opcode, Opcode::Lseek),
            Ok(Answer::Deferred) => panic!("{opcode:?} was deferred without an offer"),
            Err(error) => assert!(error.errno().raw_os_error() > 0),
        }
        let taken = output.capacity();
        assert!(taken <= OUTPUT_BYTES_MAX, "{opcode:?} made the buffer {taken} bytes");
    }
}

fn check_reply(opcode: Opcode, incoming: Incoming<'_>, length: usize) {
    match room(opcode, incoming) {
        Room::Exactly(bytes) => assert_eq!(length, bytes, "{opcode:?}"),
        Room::AtMost(bytes) => assert!(length <= bytes, "{opcode:?}: {length} of {bytes}"),
    }
}

/// The payload size of a reply that the kernel accepts.
enum Room {
    Exactly(usize),
    AtMost(usize),
}

fn room(opcode: Opcode, mut incoming: Incoming<'_>) -> Room {
    let sized = |size: u32| match size {
        0 => Room::Exactly(8),
        size => Room::AtMost(size as usize),
    };
    match opcode {
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => {
            Room::AtMost(incoming.body.take_padded::<ReadIn>().size as usize)
        }
        Opcode::Getxattr | Opcode::Listxattr => {
            sized(incoming.body.take_padded::<GetxattrIn>().size)
        }
        Opcode::Readlink => Room::AtMost(4095),
        Opcode::Lookup | Opcode::Symlink | Opcode::Mknod | Opcode::Mkdir | Opcode::Link => {
            Room::Exactly(128)
        }
        Opcode::Create | Opcode::Tmpfile => Room::Exactly(128 + 16),
        Opcode::Open | Opcode::Opendir => Room::Exactly(16),
        Opcode::Getattr | Opcode::Setattr => Room::Exactly(104),
        Opcode::Statx => Room::Exactly(288),
        Opcode::Statfs => Room::Exactly(80),
        Opcode::Write | Opcode::CopyFileRange | Opcode::CopyFileRange64 | Opcode::Lseek => {
            Room::Exactly(8)
        }
        _ => Room::Exactly(0),
    }
}

pub(crate) fn all_granted(options: &MountOptions) -> Granted {
    let mut offer = InitIn::new_zeroed();
    (offer.major, offer.minor) = (MAJOR, MINOR_MAX);
    let everything = InitFlags::all().bits();
    (offer.flags, offer.flags2) = (everything as u32, (everything >> 32) as u32);
    negotiate(&offer, options, Limits::default()).1
}

/// Adds the initial files. A failure only reduces the coverage of conversations.
pub(super) fn populate(memory: &MemFs) {
    let request = Request::default();
    let made = || -> fslab_vfs::Result<()> {
        let name = |text| Name::new(std::ffi::OsStr::new(text));
        let (file, flags) = (name("a")?, OpenMode::READ_WRITE);
        let (entry, opened) = memory.create(&request, Ino::ROOT, file, 0o6755, flags)?;
        let options = WriteOptions::default();
        memory.write(&request, entry.attr.ino, opened.handle, 5000, b"some bytes", options)?;
        memory.opendir(&request, Ino::ROOT)?;
        memory.mkdir(&request, Ino::ROOT, name("d")?, 0o2777)?;
        memory.symlink(&request, Ino::ROOT, name("l")?, "target".as_ref()).map(drop)
    };
    if let Err(error) = made() {
        tracing::error!(%error, "can't create the initial files");
    }
}

/// A transport that delivers no requests and records the replies.
#[derive(Debug, Default)]
pub(crate) struct ScriptedChannel {
    /// The error with which all replies are refused, if any.
    pub refusal: Mutex<Option<Errno>>,
    /// The replies: the payload's length, or an error.
    pub replies: Mutex<Vec<Result<usize, Errno>>>,
    /// The state of a kept mount. For each reply, `written_down` receives whether the reply was
    /// recorded there before it was sent.
    pub witnessed: Mutex<Option<Arc<KeptState>>>,
    pub written_down: Mutex<Vec<bool>>,
    /// The payload of the last reply.
    pub payload: Mutex<Vec<u8>>,
}

impl Transport for ScriptedChannel {
    fn receive(&self, _: &mut [u8]) -> Result<Received, Errno> {
        Ok(Received::Gone)
    }

    fn reply(&self, unique: u64, answer: Result<&[u8], Errno>) -> Result<(), Errno> {
        self.replies.lock().push(answer.map(<[u8]>::len));
        if let Some(state) = &*self.witnessed.lock() {
            self.written_down.lock().push(Records::taken_over(state).is_complete(unique));
        }
        *self.payload.lock() = answer.unwrap_or_default().to_vec();
        self.refusal.lock().map_or(Ok(()), Err)
    }

    fn notify(&self, _: i32, _: &[&[u8]]) -> Result<(), Errno> {
        Ok(())
    }

    fn another(&self, _: ReadMode) -> Result<Arc<dyn Transport>, Errno> {
        let refusal = *self.refusal.lock();
        refusal.map_or_else(|| Ok(Arc::new(Self::default()) as Arc<dyn Transport>), Err)
    }

    fn register_backing(&self, _: BorrowedFd<'_>) -> Result<i32, Errno> {
        Err(Errno::PERM)
    }

    fn release_backing(&self, _: i32) -> Result<(), Errno> {
        Ok(())
    }

    fn is_connected(&self) -> bool {
        true
    }
}
