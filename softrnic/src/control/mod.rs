//! Faults of devices, for tests: a port goes down, a device is removed. [`Device::counters`] shows what has happened on a
//! network.
//!
//! A fault has the consequences that it has with a NIC: asynchronous events, failed requests and connections. It applies
//! to the devices of this process. A peer in another process notices it as it would notice a fault of another host.
//!
//! ```
//! softrnic::register()?;
//! let device = softrnic::control::Device::named("soft0")?;
//! device.port_down()?; // `IBV_EVENT_PORT_ERR`; from now on, messages are lost
//! device.port_up()?; // `IBV_EVENT_PORT_ACTIVE`; requests that are still retried continue
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Command`] does this by its text: `"port down on soft0".parse::<Command>()?.run()?`.
//!
//! These functions must not be called between `ibv_wr_start` and `ibv_wr_complete` of a queue pair.

mod command;
pub(crate) mod socket;

use std::sync::Arc;
use std::time::Duration;
use std::{io, ptr};

use rdma_mummy_sys::{ibv_event_type, ibv_wc_status};
use thiserror::Error;

pub use self::command::{Action, Command, ParseError};
pub use self::socket::CONTROL_VARIABLE;
use crate::qp::registry::QpRegistry;
use crate::verbs::async_event::AsyncEvent;
use crate::verbs::context::raise;
use crate::verbs::device::{self, Slot};
use crate::verbs::port::PORT;
use crate::wire::bytes::Fault;
use crate::wire::message;
use crate::wire::transport::Fabric;
pub use crate::wiring::Counters;
use crate::{cm, wiring};

/// A soft device of this process.
#[derive(Clone, Copy, Debug)]
pub struct Device(&'static Slot);

impl Device {
    /// Returns the registered device with this name, even if it was removed.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if no device is registered with this name.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = Self::all().find(|device| device.name() == name);
        found.ok_or_else(|| Error::Unknown { name: name.to_owned(), devices: Self::all().map(Self::name).collect() })
    }

    /// Returns all registered devices, including those that were removed.
    pub fn all() -> impl Iterator<Item = Self> {
        device::slots().iter().map(Self)
    }

    /// Returns the name of the device.
    #[must_use]
    pub fn name(self) -> String {
        String::from_utf8_lossy(self.0.device().name()).into_owned()
    }

    /// Takes the port down, and raises `IBV_EVENT_PORT_ERR`. The port neither sends nor receives. Requests of reliable
    /// queue pairs fail with `IBV_WC_RETRY_EXC_ERR` after their retries, other messages are lost, and the connection
    /// manager does not connect. Connections of an iWARP device end after 30 s. Has no effect if the port is down.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn port_down(self) -> Result<(), Error> {
        self.set_port(true)
    }

    /// Takes the port up, and raises `IBV_EVENT_PORT_ACTIVE`. Requests and connections that are still retried continue.
    /// Has no effect if the port is up.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn port_up(self) -> Result<(), Error> {
        self.set_port(false)
    }

    /// Removes the device. This raises `IBV_EVENT_DEVICE_FATAL`, and `RDMA_CM_EVENT_DEVICE_REMOVAL` on the identifiers
    /// of the device, whose connections end. The queue pairs of the device are then in the error state, and their
    /// requests are flushed; a NIC may flush none. Verbs that require the device fail with `EIO`, but the program can
    /// destroy its objects. Later device lists do not contain the device.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed before.
    pub fn remove(self) -> Result<(), Error> {
        let device = self.0.device();
        if !device.condition().remove() {
            return Err(Error::Removed { name: self.name() });
        }
        for pair in QpRegistry::of_process().of_device(device.condition()) {
            pair.end_by_fault(false);
        }
        cm::device_removed(device);
        raise(device, &AsyncEvent::of_device(ibv_event_type::IBV_EVENT_DEVICE_FATAL));
        Ok(())
    }

    /// Puts a new device with this name into later device lists, after [`remove`](Self::remove). Objects of the removed
    /// device stay unusable.
    ///
    /// # Errors
    ///
    /// [`Error::Present`] if the device was not removed.
    pub fn arrive(self) -> Result<(), Error> {
        if self.0.arrive() { Ok(()) } else { Err(Error::Present { name: self.name() }) }
    }

    /// Raises `RDMA_CM_EVENT_ADDR_CHANGE` on the identifiers of the device, as the kernel does when a bond fails over. The
    /// addresses stay the same.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn change_address(self) -> Result<(), Error> {
        cm::address_changed(self.present()?);
        Ok(())
    }

    /// Delays each message that queue pairs of the device send. Zero ends the delay.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn delay(self, delay: Duration) -> Result<(), Error> {
        let condition = self.present()?.condition();
        condition.set_delay(delay);
        wiring::condition_changed(condition);
        Ok(())
    }

    /// Limits the bandwidth of the messages that queue pairs of the device send, in bytes per second. Zero ends the limit.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn limit_rate(self, bytes_per_second: u64) -> Result<(), Error> {
        let condition = self.present()?.condition();
        condition.set_rate(bytes_per_second);
        wiring::condition_changed(condition);
        Ok(())
    }

    /// Limits the memory that is registered at the same time, in bytes. Registrations beyond the limit fail with
    /// `ENOMEM`. `None` ends the limit.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed.
    pub fn limit_memory(self, bytes: Option<u64>) -> Result<(), Error> {
        self.present()?.condition().set_limit(bytes.unwrap_or(u64::MAX));
        Ok(())
    }

    /// Lets the connections of an iWARP device carry no bytes for a time, as if a cable were pulled and put back: TCP
    /// stays connected, and what was sent arrives later. Connections end after 30 s without bytes. Zero ends the cut.
    /// Connections that are made in this time are cut, too.
    ///
    /// # Errors
    ///
    /// [`Error::Removed`] if the device was removed, and [`Error::NotIwarp`] if it is a RoCE device, which
    /// [`port_down`](Self::port_down) disconnects.
    pub fn cut(self, time: Duration) -> Result<(), Error> {
        let condition = self.of_iwarp()?.condition();
        condition.cut(time);
        wiring::condition_changed(condition);
        Ok(())
    }

    /// Changes a byte of the next frame that an iWARP device sends. The peer detects the wrong CRC and ends the
    /// connection with a Terminate message, so both queue pairs enter the error state.
    ///
    /// # Errors
    ///
    /// As for [`cut`](Self::cut).
    pub fn corrupt(self) -> Result<(), Error> {
        self.of_iwarp()?.condition().corrupt_next();
        Ok(())
    }

    /// Returns the queue pair of this device with this number.
    ///
    /// # Errors
    ///
    /// [`Error::NoQueuePair`] if no soft device of this process has one, [`Error::OtherDevice`] if another device has it.
    pub fn queue_pair(self, number: u32) -> Result<QueuePair, Error> {
        let pair = QueuePair::numbered(number)?;
        let is_own = ptr::eq(pair.0.parts().condition, self.0.device().condition());
        if is_own { Ok(pair) } else { Err(Error::OtherDevice { number, name: self.name() }) }
    }

    /// Returns the counters of all RoCEv2 devices of the process, which share a UDP port.
    ///
    /// # Errors
    ///
    /// [`Error::NoCounters`] if it is another device.
    pub fn counters(self) -> Result<Counters, Error> {
        let counters = self.is_roce().then(|| wiring::roce_counters(None)).flatten();
        counters.ok_or_else(|| Error::NoCounters { of: format!("device {}", self.name()) })
    }

    fn is_roce(self) -> bool {
        self.0.device().kind().fabric == Fabric::Roce
    }

    fn is_iwarp(self) -> bool {
        self.0.device().kind().fabric == Fabric::Iwarp
    }

    fn of_iwarp(self) -> Result<&'static device::Device, Error> {
        let device = self.present()?;
        if self.is_iwarp() { Ok(device) } else { Err(Error::NotIwarp { name: self.name() }) }
    }

    fn set_port(self, is_down: bool) -> Result<(), Error> {
        let device = self.present()?;
        if device.condition().set_down(is_down) {
            wiring::condition_changed(device.condition());
            cm::port_changed();
            let kind = if is_down { ibv_event_type::IBV_EVENT_PORT_ERR } else { ibv_event_type::IBV_EVENT_PORT_ACTIVE };
            raise(device, &AsyncEvent::of_port(kind, PORT));
        }
        Ok(())
    }

    /// Returns the device unless it was removed.
    fn present(self) -> Result<&'static device::Device, Error> {
        let device = self.0.device();
        if device.condition().is_removed() { Err(Error::Removed { name: self.name() }) } else { Ok(device) }
    }
}

/// A queue pair of a soft device of this process.
#[derive(Clone, Debug)]
pub struct QueuePair(Arc<crate::qp::QueuePair>);

/// The reason for which a queue pair refuses a request of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// `IBV_WC_REM_ACCESS_ERR` at the requester, and `IBV_EVENT_QP_ACCESS_ERR`.
    Access,
    /// `IBV_WC_REM_INV_REQ_ERR` at the requester, and `IBV_EVENT_QP_REQ_ERR`.
    Invalid,
    /// `IBV_WC_REM_OP_ERR` at the requester, and `IBV_EVENT_QP_ACCESS_ERR`.
    Operation,
}

impl QueuePair {
    /// Returns the queue pair with this number.
    ///
    /// # Errors
    ///
    /// [`Error::NoQueuePair`] if no soft device of this process has one.
    pub fn numbered(number: u32) -> Result<Self, Error> {
        QpRegistry::of_process().find(number).map(Self).ok_or(Error::NoQueuePair { number })
    }

    /// Makes the next message that the queue pair sends complete with this status, which is not that of success. Later
    /// requests are flushed. The peer does not notice it: see [`refuse`](Self::refuse).
    pub fn fail(&self, status: ibv_wc_status) {
        self.0.fail_next(status);
    }

    /// Makes the queue pair refuse the next message that it receives. Both queue pairs then fail, as after a request that
    /// violates access rights.
    pub fn refuse(&self, refusal: Refusal) {
        self.0.refuse_next(match refusal {
            Refusal::Access => message::Refusal::AccessError(Fault::Rights),
            Refusal::Invalid => message::Refusal::InvalidRequest,
            Refusal::Operation => message::Refusal::OperationError,
        });
    }

    /// Returns the counters of the connection of the queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::NoCounters`] if the queue pair belongs to another device than a RoCEv2 device, or is not connected.
    pub fn counters(&self) -> Result<Counters, Error> {
        let number = self.0.number();
        wiring::roce_counters(Some(number)).ok_or_else(|| Error::NoCounters { of: format!("queue pair {number}") })
    }

    /// Moves the queue pair to the error state, flushes its requests, and raises `IBV_EVENT_QP_FATAL`.
    pub fn break_down(&self) {
        self.0.end_by_fault(true);
    }
}

/// The reason why a fault cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// No device is registered with this name.
    #[error("no soft device is named {name:?}; choose one of the registered devices: {}", .devices.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names of the registered devices.
        devices: Vec<String>,
    },
    /// The device was removed.
    #[error("device {name} was removed; let it arrive first")]
    Removed {
        /// The name of the device.
        name: String,
    },
    /// No queue pair has this number.
    #[error("no queue pair of a soft device has the number {number}; choose a `qp_num` of this process")]
    NoQueuePair {
        /// The number.
        number: u32,
    },
    /// The queue pair belongs to another device.
    #[error("queue pair {number} does not belong to device {name}; name its device, or none")]
    OtherDevice {
        /// The number.
        number: u32,
        /// The name of the device.
        name: String,
    },
    /// The device has no connections over TCP.
    #[error("device {name} is not an iWARP device; use `port down`, or name a device such as softiw0")]
    NotIwarp {
        /// The name of the device.
        name: String,
    },
    /// The device or the queue pair has no counters.
    #[error("{of} has no counters; only RoCEv2 devices, such as softroce0, and their connected queue pairs do")]
    NoCounters {
        /// The device or the queue pair.
        of: String,
    },
    /// The device cannot arrive, because it was not removed.
    #[error("device {name} is present; remove it first")]
    Present {
        /// The name of the device.
        name: String,
    },
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(io::ErrorKind::NotFound, error)
    }
}
