//! Builds a UMEM.

use super::region::{Geometry, Holder};
use super::{Pool, Umem};
use crate::error::{Error, Step};
use crate::sys::{self, Mapping};

/// The smallest frame that the kernel accepts.
const SMALLEST: u32 = 2048;
/// The size of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes that XDP reserves before a packet.
const XDP_HEADROOM: u32 = 256;

/// The options of a [`Umem`].
#[derive(Clone, Debug)]
pub struct UmemBuilder {
    geometry: Geometry,
    is_huge: bool,
}

impl UmemBuilder {
    pub(super) fn new(count: u32) -> Self {
        let geometry = Geometry {
            count,
            frame_size: 4096,
            headroom: 0,
            is_unaligned: false,
            has_metadata: false,
            software_checksum: false,
        };
        Self { geometry, is_huge: false }
    }

    /// Size of a frame in bytes: 2048 or 4096, at most the size of a page; in unaligned mode, any multiple of 8 between
    /// these.
    pub fn frame_size(&mut self, bytes: u32) -> &mut Self {
        self.geometry.frame_size = bytes;
        self
    }

    /// Bytes that the kernel leaves free before each received packet, in addition to the 256 of XDP, for example for
    /// headers to prepend.
    pub fn headroom(&mut self, bytes: u32) -> &mut Self {
        self.geometry.headroom = bytes;
        self
    }

    /// Allows frame sizes that are not a power of two (`XDP_UMEM_UNALIGNED_CHUNK_FLAG`). Zero copy then needs huge
    /// pages.
    pub fn unaligned(&mut self, is_unaligned: bool) -> &mut Self {
        self.geometry.is_unaligned = is_unaligned;
        self
    }

    /// Takes the memory from huge pages of 2 MiB, which the system must have reserved.
    pub fn huge_pages(&mut self, is_huge: bool) -> &mut Self {
        self.is_huge = is_huge;
        self
    }

    /// Allows [`TxMetadata`](crate::TxMetadata) (Linux 6.8).
    pub fn tx_metadata(&mut self, is_enabled: bool) -> &mut Self {
        self.geometry.has_metadata = is_enabled;
        self
    }

    /// In copy mode, makes the kernel calculate the checksums that TX metadata requests (`XDP_UMEM_TX_SW_CSUM`).
    /// Implies [`tx_metadata`](Self::tx_metadata).
    pub fn software_checksum(&mut self, is_enabled: bool) -> &mut Self {
        self.geometry.software_checksum = is_enabled;
        self.geometry.has_metadata |= is_enabled;
        self
    }

    /// Maps the memory. The returned pool contains all frames.
    ///
    /// # Errors
    ///
    /// The kernel would reject the geometry, or there is not enough memory.
    pub fn build(&self) -> Result<(Umem, Pool), Error> {
        let geometry = self.geometry;
        self.check()?;
        let page = if self.is_huge { HUGE_PAGE } else { sys::page_size() };
        let len = (geometry.count as usize * geometry.frame_size as usize).next_multiple_of(page);
        let mapping = Mapping::anonymous(len, self.is_huge)
            .map_err(|errno| Error::new(Step::MapUmem, errno, format!("{len} bytes")))?;
        let mut holder = Holder::new(mapping, geometry);
        // All frames are in the pool, and therefore count as outside.
        holder.settle(0);
        let pool = Pool::full(holder.clone());
        Ok((Umem::new(holder), pool))
    }

    fn check(&self) -> Result<(), Error> {
        let Geometry { count, frame_size, headroom, is_unaligned, .. } = self.geometry;
        let invalid = |cause: String| Err(Error::invalid(Step::MapUmem, "the UMEM", cause));
        let page = sys::page_size() as u32;
        if !(SMALLEST..=page).contains(&frame_size) {
            return invalid(format!("frames have {frame_size} bytes; choose {SMALLEST} to {page}"));
        }
        if !is_unaligned && !frame_size.is_power_of_two() {
            return invalid(format!("frames have {frame_size} bytes; choose a power of two or unaligned(true)"));
        }
        // A frame must start at an even address: Linux 6.18 clears the lowest bit of the addresses that it completes in
        // copy mode.
        if !frame_size.is_multiple_of(8) {
            return invalid(format!("frames have {frame_size} bytes; choose a multiple of 8"));
        }
        if headroom > frame_size - XDP_HEADROOM {
            return invalid(format!(
                "a headroom of {headroom} bytes leaves no space for packets in frames of {frame_size}; choose a smaller one"
            ));
        }
        // The list of dropped frames stores the start of each frame in 32 bits.
        if count == 0 || u64::from(count) * u64::from(frame_size) > u64::from(u32::MAX) {
            return invalid(format!(
                "{count} frames of {frame_size} bytes; choose at least 1 and less than 4 GiB in all"
            ));
        }
        Ok(())
    }
}
