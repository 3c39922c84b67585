//! Connections by address: the events of the connection manager, as futures.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use sideway::rdmacm::{Event, EventChannel, EventKind, EventType, Identifier};

use crate::Error;
use crate::error::NotConnected;
use crate::link::Link;

/// The event channel of a core.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) channel: Arc<EventChannel>,
    /// The queues of events, by the addresses of their identifiers.
    inboxes: RefCell<FxHashMap<usize, Weak<Inbox>>>,
    /// Since when events cannot be read.
    fails_since: Cell<Option<Instant>>,
    /// Why no events can be read any more.
    broken: OnceCell<Error>,
}

/// The events of an identifier.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) id: Arc<Identifier>,
    events: RefCell<VecDeque<Event>>,
    /// The most events that wait here. Later ones are dropped, which rejects requests.
    most: usize,
    waker: RefCell<Option<Waker>>,
    /// The connection, once it is established.
    link: RefCell<Weak<Link>>,
    manager: Weak<Manager>,
}

/// After failures for this time, no more events are read. Before, the process may be short of descriptors or memory for a
/// moment.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many events an identifier that does not listen can have. Each is the answer to a step.
pub(crate) const EVENTS: usize = 16;

fn name(id: &Arc<Identifier>) -> usize {
    Arc::as_ptr(id).addr()
}

impl Manager {
    pub(crate) fn new() -> Result<Self, Error> {
        let channel = EventChannel::new().map_err(|error| Error::System(error.to_string().into()))?;
        Ok(Self { channel, inboxes: RefCell::default(), fails_since: Cell::new(None), broken: OnceCell::new() })
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its descriptor open as long as it lives, and the core only waits for the descriptor.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) }
    }

    /// Watches an identifier of this channel.
    pub(crate) fn watch(self: &Rc<Self>, id: Arc<Identifier>, most: usize) -> Rc<Inbox> {
        let key = name(&id);
        let inbox = Rc::new(Inbox {
            id,
            events: RefCell::default(),
            most,
            waker: RefCell::default(),
            link: RefCell::default(),
            manager: Rc::downgrade(self),
        });
        self.inboxes.borrow_mut().insert(key, Rc::downgrade(&inbox));
        inbox
    }

    /// Delivers the events that are there. Passes each connection that has ended to `end`. Returns whether this was the
    /// last time: then no events can be read any more, so no connection by address can be made. Those that stand go on.
    pub(crate) fn attend(&self, end: impl Fn(&Rc<Link>, Error)) -> bool {
        if self.broken.get().is_some() {
            return false;
        }
        loop {
            let event = match self.channel.try_get_cm_event() {
                Ok(Some(event)) => event,
                Ok(None) => {
                    self.fails_since.set(None);
                    return false;
                }
                Err(error) => return self.fail(error.into()),
            };
            self.fails_since.set(None);
            let owner = event.listener_id().unwrap_or_else(|| event.cm_id());
            let inbox = self.inboxes.borrow().get(&name(owner)).and_then(Weak::upgrade);
            // A dropped request is rejected.
            let Some(inbox) = inbox else { continue };
            inbox.deliver(event, &end);
        }
    }

    fn fail(&self, error: Error) -> bool {
        let since = self.fails_since.get().unwrap_or_else(Instant::now);
        self.fails_since.set(Some(since));
        if since.elapsed() < PATIENCE || self.broken.set(error).is_err() {
            return false;
        }
        let inboxes: Vec<_> = self.inboxes.borrow().values().filter_map(Weak::upgrade).collect();
        inboxes.iter().for_each(|inbox| inbox.wake());
        true
    }

    /// Returns an error if no connections by address can be made any more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.broken.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Inbox {
    fn deliver(&self, event: Event, end: &impl Fn(&Rc<Link>, Error)) {
        let link = self.link.borrow().upgrade();
        if let Some(link) = link {
            let cause = match event.kind() {
                EventKind::Disconnected(_) => Error::Closed,
                EventKind::DeviceRemoval => Error::Removed,
                _ => return,
            };
            return end(&link, cause);
        }
        if self.events.borrow().len() < self.most {
            self.events.borrow_mut().push_back(event);
        }
        self.wake();
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the next event.
    ///
    /// # Errors
    ///
    /// No events can be read any more.
    pub(crate) async fn next(&self) -> Result<Event, Error> {
        poll_fn(|context| {
            let event = self.events.borrow_mut().pop_front();
            if let Some(event) = event {
                return Poll::Ready(Ok(event));
            }
            if let Some(manager) = self.manager.upgrade() {
                manager.check()?;
            }
            let waker = context.waker().clone();
            let earlier = self.waker.borrow_mut().replace(waker);
            drop(earlier);
            Poll::Pending
        })
        .await
    }

    /// Waits for an event of this type; others end the attempt.
    pub(crate) async fn expect(&self, expected: EventType, peer: Option<SocketAddr>) -> Result<Event, Error> {
        loop {
            let event = self.next().await?;
            match event.kind() {
                EventKind::AddressChange | EventKind::TimewaitExit => {}
                _ if event.event_type() == expected => return Ok(event),
                _ => return Err(NotConnected::error(peer, event.to_string())),
            }
        }
    }

    /// Waits until the peer has confirmed that this side accepts.
    pub(crate) async fn confirmed(&self, peer: Option<SocketAddr>) -> Result<(), Error> {
        loop {
            let event = self.next().await?;
            match event.kind() {
                EventKind::AddressChange | EventKind::TimewaitExit => {}
                EventKind::Established(_) => return Ok(()),
                // The confirmation was lost: only a peer that got the answer, and is thereby connected, disconnects. The
                // event then ends the connection, after its messages.
                EventKind::Disconnected(_) => {
                    self.events.borrow_mut().push_front(event);
                    return Ok(());
                }
                _ => return Err(NotConnected::error(peer, event.to_string())),
            }
        }
    }

    /// Makes later events those of a connection. Passes it to `end` if it has ended.
    pub(crate) fn belongs_to(&self, link: &Rc<Link>, end: impl Fn(&Rc<Link>, Error)) {
        *self.link.borrow_mut() = Rc::downgrade(link);
        // The peer may have closed already.
        let events = std::mem::take(&mut *self.events.borrow_mut());
        for event in events {
            self.deliver(event, &end);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.inboxes.borrow_mut().remove(&name(&self.id));
        }
    }
}
