//! Checks and verifies stored files.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelExtend, ParallelIterator};

use super::found::{Found, NO_FRAME};
use super::{Depth, Finding, Tool};
use crate::dump::Stretch;
use crate::error::Result;
use crate::format::Kind;
use crate::frame::{self, Entry, Frame};
use crate::frame_reader;
use crate::gap::blocks_of;
use crate::log::Log;
use crate::superblock;

impl Tool {
    /// Checks the structure: head, every header, metadata. With [`Depth::Everything`] it also
    /// checks that content matches its checksums and can be decoded.
    ///
    /// # Errors
    /// Errors after which the check can't continue; damage is returned as findings.
    pub fn check(&self, depth: Depth) -> Result<Vec<Finding>> {
        self.check_and_report(depth, &|_share| {})
    }

    /// Checks like [`Self::check`]. Several threads call `report_share` with the checked share of
    /// the content, from 0 to 1.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn check_and_report(
        &self,
        depth: Depth,
        report_share: &(dyn Fn(f64) + Sync),
    ) -> Result<Vec<Finding>> {
        let mut findings = self.check_walk()?;
        let found = self.look().and_then(|found| Ok((self.entries(&found.log)?, found)));
        let (entries, Found { log, missing, .. }) = match found {
            Ok(found) => found,
            Err(error) => {
                findings.push(Finding { offset: 0, chunk: None, what: error.to_string() });
                return Ok(findings);
            }
        };
        findings.extend(missing.into_iter().filter(|finding| finding.what != NO_FRAME));
        findings.extend(self.check_closing(&log));
        if depth == Depth::Everything {
            let (done, all) = (AtomicU64::new(0), entries.len() as f64);
            let check = |(chunk, entry): (u64, Entry)| {
                let finding = self.check_entry(&log, chunk, entry);
                report_share((done.fetch_add(1, Ordering::Relaxed) + 1) as f64 / all);
                finding
            };
            findings.par_extend(entries.into_par_iter().filter_map(check));
        }
        findings.sort_by_key(|finding| finding.offset);
        Ok(findings)
    }

    fn check_entry(&self, log: &Log, chunk: u64, entry: Entry) -> Option<Finding> {
        let error = log.map.check_content(self.io(), entry, chunk).err()?;
        let what = error.to_string();
        Some(Finding { offset: entry.frame.offset, chunk: Some(chunk), what })
    }

    /// Checks that the walk from header to header reaches the end of the file, and that the head
    /// and the header of each frame are valid.
    fn check_walk(&self) -> Result<Vec<Finding>> {
        let mut findings = self.check_head()?;
        let has_closing = self.look().is_ok_and(|found| found.log.journal.closing_bytes() > 0);
        for stretch in self.stretches()? {
            match stretch {
                Stretch::Rest { offset, .. } if !has_closing => {
                    findings.push(Finding { offset, chunk: None, what: NO_FRAME.to_owned() });
                }
                Stretch::Frame(frame) => findings.extend(self.check_header(&frame)?),
                _ => {}
            }
        }
        Ok(findings)
    }

    /// Checks that the seek table, if there is one, is correct.
    fn check_closing(&self, log: &Log) -> Option<Finding> {
        let closing = self.identity.codec.container.closing?;
        let bytes = log.journal.closing_bytes() as usize;
        if bytes == 0 {
            return None;
        }
        let io = self.io();
        let present = io.lower.read(io.request, log.end(), bytes).ok();
        let expected = log.closing(io, closing).ok();
        let what = "a damaged seek table".to_owned();
        (present != expected).then_some(Finding { offset: log.end(), chunk: None, what })
    }

    fn check_head(&self) -> Result<Vec<Finding>> {
        let read = self.lower.read(&self.request, 0, superblock::BEGINNING_BYTES);
        let beginning = read.map_err(|error| self.failed(error))?;
        let damaged = superblock::damaged_parts(&self.identity, &beginning);
        let to_finding =
            |(offset, what): (u64, &str)| Finding { offset, chunk: None, what: what.to_owned() };
        Ok(damaged.into_iter().map(to_finding).collect())
    }

    /// Checks that the bytes around a frame's record are those that ordinary tools need, and that
    /// metadata is valid. Content is checked through the index instead, because the space of dead
    /// content may have been freed.
    fn check_header(&self, frame: &Frame) -> Result<Option<Finding>> {
        let offset = frame.reference.offset;
        let read = self.lower.read(&self.request, offset, self.identity.header_bytes());
        let header = read.map_err(|error| self.failed(error))?;
        let as_written = frame::header(&self.identity, frame);
        let is_metadata = !frame.kind.has_content() && frame.kind != Kind::Gap;
        let read = |frame: &Frame| {
            frame_reader::frame(self.io(), &self.identity, frame.reference).map(drop)
        };
        if let Some(Err(error)) = is_metadata.then(|| read(frame))
            && !self.was_given_back(frame)?
        {
            return Ok(Some(Finding { offset, chunk: None, what: error.to_string() }));
        }
        let what = "a frame header with wrong bytes in or around its record".to_owned();
        Ok((header != as_written).then_some(Finding { offset, chunk: None, what }))
    }

    /// Whether the frame is a dead page or checkpoint whose space was freed.
    fn was_given_back(&self, frame: &Frame) -> Result<bool> {
        let (place, blocks) = (frame.reference, blocks_of(&self.identity, frame.reference));
        if !matches!(frame.kind, Kind::Index | Kind::Checkpoint) || blocks.is_empty() {
            return Ok(false);
        }
        let (io, is_slotted) = (self.io(), |slot: &superblock::Slot| slot.checkpoint == place);
        let read = io.lower.read(io.request, 0, superblock::BEGINNING_BYTES);
        let is_of_use =
            |head: Vec<u8>| superblock::slots(&self.identity, &head).iter().any(is_slotted);
        let found =
            read.and_then(|head| Ok(!is_of_use(head) && io.lower.is_zero(io.request, &blocks)?));
        found.map_err(|error| self.failed(error))
    }
}
