//! A file that is being written under its temporary name, and the journal of its blocks.
//!
//! The journal contains the hash of each block, in order. The kernel keeps the data that a killed process has written,
//! so all blocks of the journal are valid until a reboot. After a reboot, only the blocks before the last sync are
//! valid. A run that finds the file and its journal verifies the last block and continues after it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use twox_hash::XxHash3_128;

use super::beneath::{Directory, temporary_name};
use crate::channel::BLOCK;
use crate::proto::{Entry, EntryKind};

/// Files up to this length have no journal. After an interruption, they are sent again.
const LEAST: u64 = 8 << 20;
/// Bytes between two syncs.
const SYNC: u64 = 256 << 20;
/// Length in bytes of a record, which contains the offset, the length and the hash of a block.
const RECORD: usize = 32;
/// The offset value that marks a sync record: all blocks before this record are on the disk.
const SYNCED: u64 = u64::MAX;

/// A partial file, under its temporary name.
#[derive(Debug)]
pub struct Partial {
    /// The file.
    pub fd: OwnedFd,
    /// The file's temporary name.
    pub name: Vec<u8>,
    /// The journal; absent for short files.
    pub journal: Option<Journal>,
}

/// The journal of a partial file.
#[derive(Debug)]
pub struct Journal {
    fd: OwnedFd,
    name: Vec<u8>,
    at: u64,
    unsynced: u64,
}

impl Partial {
    /// Returns how many bytes an earlier run has written of an entry of `size` bytes.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn have(directory: &Directory, entry: &Entry, size: u64, mode: u16) -> Result<u64, Errno> {
        let (name, journal_name) = names(entry, size, mode)?;
        let found = if size > LEAST { Partial::found(directory, &name, &journal_name)? } else { None };
        Ok(found.map_or(0, |(_, have)| have))
    }

    /// Opens the partial file of an entry of `size` bytes, or creates it with this mode. Returns the number of bytes that
    /// it already has.
    ///
    /// # Errors
    ///
    /// See openat(2); `EWOULDBLOCK` if another process writes the file.
    pub fn open(directory: &Directory, entry: &Entry, size: u64, mode: u16) -> Result<(Partial, u64), Errno> {
        let (name, journal_name) = names(entry, size, mode)?;
        let has_journal = size > LEAST;
        if has_journal && let Some((partial, have)) = Partial::found(directory, &name, &journal_name)? {
            return Ok((partial, have));
        }
        let fd = directory.claim(&name, mode)?;
        let journal = if has_journal {
            directory.remove_stale(&journal_name);
            let created = directory.create(&journal_name, 0o600);
            let started = created.and_then(|file| rustix::io::write(&file, &boot()).map(|_| file));
            let file = started.inspect_err(|_| {
                directory.remove_stale(&journal_name);
                directory.remove_stale(&name);
            })?;
            Some(Journal { fd: file, name: journal_name, at: RECORD as u64, unsynced: 0 })
        } else {
            None
        };
        Ok((Partial { fd, name, journal }, 0))
    }

    fn found(directory: &Directory, name: &[u8], journal_name: &[u8]) -> Result<Option<(Partial, u64)>, Errno> {
        let Ok((fd, _)) = directory.open_file(name, true) else { return Ok(None) };
        directory.lock(&fd, name)?;
        let Ok((journal, found)) = directory.open_file(journal_name, true) else { return Ok(None) };
        let me = rustix::process::geteuid().as_raw();
        if found.st_uid != me || found.st_size as u64 > (1 << 32) {
            return Ok(None);
        }
        let mut records = vec![0; found.st_size as usize];
        let length = read_at(&journal, &mut records, 0)?;
        records.truncate(length);
        let blocks = durable(&records);
        // Finds the last block whose contents still match its hash.
        for count in (0..=blocks.len()).rev() {
            let Some(&(offset, length, hash)) = count.checked_sub(1).and_then(|last| blocks.get(last)) else {
                return Ok(None);
            };
            let mut bytes = vec![0; length];
            if read_at(&fd, &mut bytes, offset)? == length && XxHash3_128::oneshot(&bytes) == hash {
                let at = (RECORD * (count + 1)) as u64;
                let kept: Vec<u8> = blocks[..count].iter().flat_map(record).collect();
                rustix::fs::ftruncate(&journal, 0)?;
                write_at(&journal, &[boot().as_slice(), &kept].concat(), 0)?;
                let journal = Journal { fd: journal, name: journal_name.to_vec(), at, unsynced: 0 };
                let have = offset + length as u64;
                return Ok(Some((Partial { fd, name: name.to_vec(), journal: Some(journal) }, have)));
            }
        }
        Ok(None)
    }

    /// Writes a block that was verified.
    ///
    /// # Errors
    ///
    /// See pwrite(2).
    pub fn write(&mut self, offset: u64, hash: u128, bytes: &[u8]) -> Result<(), Errno> {
        write_at(&self.fd, bytes, offset)?;
        let Some(journal) = &mut self.journal else { return Ok(()) };
        write_at(&journal.fd, &record(&(offset, bytes.len(), hash)), journal.at)?;
        journal.at += RECORD as u64;
        journal.unsynced += bytes.len() as u64;
        if journal.unsynced >= SYNC {
            journal.unsynced = 0;
            rustix::fs::fdatasync(&self.fd)?;
            write_at(&journal.fd, &record(&(SYNCED, 0, 0)), journal.at)?;
            journal.at += RECORD as u64;
        }
        Ok(())
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    ///
    /// See [`Directory::publish`].
    pub fn finish(self, directory: &Directory, name: &[u8]) -> Result<(), Errno> {
        if let Err(error) = super::settle(&self.fd) {
            self.discard(directory);
            return Err(error);
        }
        let published = directory.publish(&self.fd, &self.name, name);
        // If that failed, the file is gone, or belongs to another process.
        if let Some(journal) = &self.journal
            && published != Err(Errno::WOULDBLOCK)
        {
            directory.remove_stale(&journal.name);
        }
        published
    }

    /// Removes the file and its journal.
    pub fn discard(self, directory: &Directory) {
        directory.remove_stale(&self.name);
        if let Some(journal) = &self.journal {
            directory.remove_stale(&journal.name);
        }
    }

    /// Removes the file, or keeps it for the next run if it has a journal.
    pub fn abandon(self, directory: &Directory) {
        if self.journal.is_none() {
            directory.remove_stale(&self.name);
        }
    }
}

/// The names of the partial file and of its journal. They depend on the mode, because a file that an earlier run has begun
/// keeps its mode.
fn names(entry: &Entry, size: u64, mode: u16) -> Result<(Vec<u8>, Vec<u8>), Errno> {
    let EntryKind::File { version, .. } = entry.kind else { return Err(Errno::INVAL) };
    let identity = format!("{size} {version} {} {} {mode:o}", entry.modified.0, entry.modified.1);
    let name = temporary_name(&entry.name, identity.as_bytes());
    let journal = [name.as_slice(), b".map"].concat();
    Ok((name, journal))
}

/// Returns the offset, length and hash of those blocks in the journal whose data cannot have been lost in a reboot.
fn durable(records: &[u8]) -> Vec<(u64, usize, u128)> {
    let (header, records) = records.split_at(records.len().min(RECORD));
    let same_boot = header == boot();
    let (mut blocks, mut synced, mut end) = (Vec::new(), 0, 0);
    for bytes in records.chunks_exact(RECORD) {
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().rev().fold(0_u128, |number, &byte| number << 8 | u128::from(byte))
        };
        let (offset, length, hash) = (number(0..8) as u64, number(8..16) as u64, number(16..32));
        if offset == SYNCED {
            synced = blocks.len();
            continue;
        }
        if offset < end || length > BLOCK as u64 {
            break;
        }
        end = offset.saturating_add(length);
        blocks.push((offset, length as usize, hash));
    }
    if !same_boot {
        blocks.truncate(synced);
    }
    blocks
}

fn record(&(offset, length, hash): &(u64, usize, u128)) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    bytes[..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    bytes[16..].copy_from_slice(&hash.to_le_bytes());
    bytes
}

/// Returns the first record, which identifies the boot of the system.
fn boot() -> [u8; RECORD] {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut bytes = *b"rdcp journal 1  ................";
    bytes[16..].copy_from_slice(&XxHash3_128::oneshot(&id).to_le_bytes());
    bytes
}

fn read_at(fd: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&fd, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn write_at(fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(&fd, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: u64) -> Entry {
        let kind = EntryKind::File { size, version: 0, has_links: false, sum: None };
        Entry { name: b"f".to_vec(), kind, mode: 0o644, owner: (0, 0), modified: (5, 6), attributes: Vec::new() }
    }

    fn write(partial: &mut Partial, number: u64) {
        let bytes = vec![number as u8; BLOCK];
        partial.write(number * BLOCK as u64, XxHash3_128::oneshot(&bytes), &bytes).unwrap();
    }

    #[test]
    fn partial_file_resumes_after_its_last_whole_block() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let size = 40 * BLOCK as u64;
        let (mut partial, have) = Partial::open(&directory, &entry(size), size, 0o600).unwrap();
        assert_eq!(have, 0);
        (0..5).for_each(|number| write(&mut partial, number));
        assert_eq!(
            Partial::open(&directory, &entry(size), size, 0o600).map(drop),
            Err(Errno::WOULDBLOCK),
            "two writers"
        );
        partial.abandon(&directory);
        let (mut partial, have) = Partial::open(&directory, &entry(size), size, 0o600).unwrap();
        assert_eq!(have, 5 * BLOCK as u64);
        write(&mut partial, 5);
        // Simulates a last block that was not written completely.
        write_at(&partial.fd, b"x", 5 * BLOCK as u64 + 7).unwrap();
        drop(partial);
        let (partial, have) = Partial::open(&directory, &entry(size), size, 0o600).unwrap();
        assert_eq!(have, 5 * BLOCK as u64);
        partial.finish(&directory, b"f").unwrap();
        assert_eq!(directory.names().unwrap(), [b"f"]);
    }

    #[test]
    fn only_one_copy_writes_a_file() {
        for size in [1 << 20, 40 * BLOCK as u64] {
            let folder = tempfile::tempdir().unwrap();
            let directory = Directory::open(folder.path()).unwrap();
            let (first, _) = Partial::open(&directory, &entry(size), size, 0o600).unwrap();
            assert_eq!(
                Partial::open(&directory, &entry(size), size, 0o600).map(drop),
                Err(Errno::WOULDBLOCK),
                "{size}"
            );
            first.finish(&directory, b"f").unwrap();
            assert_eq!(directory.names().unwrap(), [b"f"]);
            // The partial file of a killed copy is not locked.
            drop(Partial::open(&directory, &entry(size), size, 0o600).unwrap());
            Partial::open(&directory, &entry(size), size, 0o600).unwrap();
        }
    }

    #[test]
    fn file_of_another_copy_gets_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let (partial, _) = Partial::open(&directory, &entry(1 << 20), 1 << 20, 0o600).unwrap();
        directory.remove_stale(&partial.name);
        let _other = directory.create(&partial.name, 0o600).unwrap();
        assert_eq!(partial.finish(&directory, b"f"), Err(Errno::WOULDBLOCK));
        assert_eq!(directory.stat(b"f").map(drop), Err(Errno::NOENT));
    }

    #[test]
    fn changed_source_does_not_resume() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let size = 40 * BLOCK as u64;
        let (mut partial, _) = Partial::open(&directory, &entry(size), size, 0o600).unwrap();
        write(&mut partial, 0);
        drop(partial);
        let kind = EntryKind::File { size, version: 1, has_links: false, sum: None };
        assert_eq!(Partial::open(&directory, &Entry { kind, ..entry(size) }, size, 0o600).unwrap().1, 0);
        let changed = Entry { modified: (5, 7), ..entry(size) };
        assert_eq!(Partial::open(&directory, &changed, size, 0o600).unwrap().1, 0);
        assert_eq!(Partial::open(&directory, &entry(size + 1), size + 1, 0o600).unwrap().1, 0);
    }

    #[test]
    fn after_a_reboot_only_synced_blocks_count() {
        let blocks = [(0, 10, 1), (10, 10, 2), (SYNCED, 0, 0), (20, 10, 3)];
        let records: Vec<u8> = blocks.iter().flat_map(record).collect();
        assert_eq!(durable(&[boot().as_slice(), &records].concat()).len(), 3);
        assert_eq!(durable(&[[7; RECORD].as_slice(), &records].concat()).len(), 2);
    }

    #[test]
    fn malformed_journal_is_not_believed() {
        for bytes in [vec![], vec![1; 5], boot().to_vec(), [boot().as_slice(), &[0xfe; 64]].concat()] {
            assert_eq!(durable(&bytes), []);
        }
    }
}
