//! Reads single frames. A missing or invalid frame is an error.

use std::ops::Deref;

use fslab_vfs::Result;

use super::context::Io;
use super::format::{FRAME_BYTES_MAX, Kind};
use super::frame::{Frame, Identity, Reference, parse_mending};

/// The body of a frame, which was read together with its header.
pub struct Body {
    bytes: Vec<u8>,
    header_bytes: usize,
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.header_bytes..]
    }
}

/// Reads a frame, header and body, and verifies its checksums (that of the body only if
/// [`Settings::verify`](super::context::Settings::verify) is set).
///
/// # Errors
/// `EIO` if the frame is invalid.
pub fn frame(io: Io<'_>, identity: &Identity, reference: Reference) -> Result<(Frame, Body)> {
    let (offset, header_bytes) = (reference.offset, identity.header_bytes());
    if reference.is_none() {
        return Err(io.damaged(offset, "lost content"));
    }
    let length = reference.stored_length as usize;
    if length as u64 > FRAME_BYTES_MAX || length < header_bytes {
        return Err(io.damaged(offset, "a frame reference with an invalid length"));
    }
    let bytes = io.lower.read(io.request, offset, length)?;
    if bytes.len() < length {
        return Err(io.damaged(offset, "a frame past the end of the stored file"));
    }
    let body = Body { bytes, header_bytes };
    // Repairs one byte as the walk does, because a header that the walk accepts must be accepted
    // everywhere.
    let frame = parse_mending(identity, &body.bytes[..header_bytes], offset)
        .map_err(|what| io.damaged(offset, what))?;
    if frame.reference != reference {
        return Err(io.damaged(offset, "a frame that does not match its reference"));
    }
    if io.settings.verify && crc32c::crc32c(&body) != frame.body_crc {
        return Err(io.damaged(offset, "a frame with a wrong checksum"));
    }
    Ok((frame, body))
}

/// Reads the header of the frame at an offset.
///
/// # Errors
/// `EIO` if there is no frame of this file.
pub fn header(io: Io<'_>, identity: &Identity, offset: u64) -> Result<Frame> {
    let header = io.lower.read(io.request, offset, identity.header_bytes())?;
    // Repairs one byte, as the walk does.
    parse_mending(identity, &header, offset).map_err(|what| io.damaged(offset, what))
}

/// Reads a frame of metadata; returns its payload.
///
/// # Errors
/// As for [`frame`].
pub fn metadata(io: Io<'_>, identity: &Identity, reference: Reference) -> Result<(Frame, Vec<u8>)> {
    let (found, body) = frame(io, identity, reference)?;
    if found.kind == Kind::Gap {
        return Ok((found, Vec::new()));
    }
    (identity.codec.container.unpack)(&body)
        .filter(|payload| payload.len() == found.length as usize)
        .map(|payload| (found, payload))
        .ok_or_else(|| io.damaged(reference.offset, "invalid metadata"))
}
