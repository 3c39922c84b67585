//! The devices of a worker. Each connection uses the device that has its local address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::event::epoll;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;

use super::driver::Driver;
use super::{ConnectionId, Kind, Transport, VERBS_STEP, Worker, now};
use crate::backend::Backend;
use crate::backend::verbs::{Stray, Verbs, choose, device_at, source_of};

/// In place of the index of a device.
pub(super) const NO_DEVICE: u8 = u8::MAX;

/// The devices that a worker has opened.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Nearly all workers have only this one, so it is found without a search.
    first: Option<Driver<Verbs>>,
    others: Vec<Driver<Verbs>>,
    /// The index of the device for each local address that was looked up.
    known: HashMap<IpAddr, u8>,
}

impl Devices {
    #[inline]
    pub(super) fn get(&self, index: u8) -> Option<&Driver<Verbs>> {
        match index {
            0 => self.first.as_ref(),
            _ => self.others.get(usize::from(index) - 1),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u8) -> Option<&mut Driver<Verbs>> {
        match index {
            0 => self.first.as_mut(),
            _ => self.others.get_mut(usize::from(index) - 1),
        }
    }

    /// Returns the device if there is exactly one.
    #[inline]
    pub(super) fn only(&mut self) -> Option<&mut Driver<Verbs>> {
        self.first.as_mut().filter(|_| self.others.is_empty())
    }

    /// Whether a condition is true for a device.
    #[inline]
    pub(super) fn any(&self, condition: impl Fn(&Driver<Verbs>) -> bool) -> bool {
        self.first.as_ref().is_some_and(&condition) || !self.others.is_empty() && self.others.iter().any(condition)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Driver<Verbs>> {
        self.first.iter().chain(&self.others)
    }

    #[inline]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Driver<Verbs>> {
        self.first.iter_mut().chain(&mut self.others)
    }

    fn push(&mut self, device: Driver<Verbs>) {
        match &mut self.first {
            None => self.first = Some(device),
            Some(_) => self.others.push(device),
        }
    }
}

impl ConnectionId {
    #[inline]
    pub(super) fn kind(self) -> Kind {
        if self.device == NO_DEVICE { Kind::Tcp } else { Kind::Rdma }
    }
}

impl Worker {
    /// Returns the index of the device that the options name. Otherwise returns that of the device with a route to
    /// `near`, or of the worker's first device. Opens the device if it is not open yet. Searches again if no device was
    /// found before, because a listener may start before the device exists.
    pub(super) fn device_for(&mut self, near: Option<SocketAddr>) -> io::Result<u8> {
        if self.verbs.is_empty() {
            let device = choose(self.options.device.as_deref(), near).map_err(unavailable)?;
            return self.open(device).map_err(unavailable);
        }
        if self.options.device.is_some() {
            return Ok(0);
        }
        let Some(source) = near.and_then(source_of) else { return Ok(0) };
        if let Some(&index) = self.verbs.known.get(&source) {
            return Ok(index);
        }
        let index = device_at(source).map_or(Ok(0), |device| self.open(device)).map_err(unavailable)?;
        self.verbs.known.insert(source, index);
        Ok(index)
    }

    /// Returns the index of a device. Opens the device if it is not open yet.
    fn open(&mut self, device: Arc<DeviceContext>) -> io::Result<u8> {
        if let Some((index, _)) = (0..).zip(self.verbs.iter()).find(|(_, verbs)| verbs.backend.is_on(&device)) {
            return Ok(index);
        }
        let index = u8::try_from(self.verbs.iter().count()).ok().filter(|index| *index != NO_DEVICE);
        let index = index.ok_or_else(|| io::Error::other("the worker has too many devices"))?;
        let verbs = Verbs::on(device, &self.options.verbs())?;
        epoll::add(&self.epoll, verbs.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        let settings = self.options.settings();
        self.verbs.push(Driver::new(verbs, settings, VERBS_STEP, self.options.backlog, now()));
        Ok(index)
    }

    /// Passes what belongs to other devices than it was found at to these devices.
    pub(super) fn place_strays(&mut self) {
        if !self.verbs.any(|verbs| verbs.backend.has_strays()) {
            return;
        }
        let strays: Vec<_> = self.verbs.iter_mut().flat_map(|verbs| verbs.backend.take_strays()).collect();
        for (device, stray) in strays {
            let name = device.name();
            // TCP is faster.
            if matches!(stray, Stray::Source(_))
                && name.starts_with("softiw")
                && self.options.transport == Transport::Any
            {
                continue;
            }
            let placed = self.open(device).and_then(|index| match (stray, self.verbs.get_mut(index)) {
                (Stray::Request(incoming), Some(verbs)) => verbs.adopt(incoming),
                (Stray::Source(source), _) => {
                    self.verbs.known.insert(source, index);
                    Ok(())
                }
                (_, None) => Err(io::ErrorKind::NotFound.into()),
            });
            if let Err(error) = placed {
                rdma_mummy_sys::log!(warn, "cannot use the device {name}: {error}");
            }
        }
    }
}

fn unavailable(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, error.to_string())
}
