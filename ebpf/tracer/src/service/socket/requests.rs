//! Requests: what may be asked on a connection, and what is answered.

use std::os::fd::OwnedFd;

use agent_sandbox_events::protocol::{
    DESCRIPTORS, Listed, Register, Request, Response, Status, VERSION, Which,
};

use super::Service;
use super::client::{Client, Follow, LINES_BYTES, Tracing};
use crate::service::core::register::Caller;
use crate::service::kernel::Kernel;
use crate::service::refusal::{Refusal, instead, no};

/// A refusal to read.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unreadable(error: std::io::Error) -> Refusal {
    no(format!("the records cannot be read: {error}"))
}

/// Who is at the other end, as far as the core must know it.
fn caller(client: &Client) -> Caller {
    Caller {
        uid: client.peer.uid,
        process: client.process(),
    }
}

fn version(version: u32) -> Result<(), Refusal> {
    if version == VERSION {
        return Ok(());
    }
    Err(instead(
        format!("this is version {VERSION} of the conversation, and not {version}"),
        "use a launcher and a tracer of the same version",
    ))
}

impl<K: Kernel> Service<K> {
    /// Answers one request.
    pub(super) fn request(&mut self, client: &mut Client, request: Request, with: &[OwnedFd]) {
        if client.follow.is_some() {
            client.answer(&no("this connection follows records: open another one").into());
            return;
        }
        if !with.is_empty() && !matches!(request, Request::Forbid { .. }) {
            client.answer(&no("descriptors without a use").into());
            client.closing = true;
            return;
        }
        let answered = match request {
            Request::Register(register) => self.register(client, register),
            Request::Forbid { version: is } => version(is).and_then(|()| self.forbid(client, with)),
            Request::Begin => self.begin(client),
            Request::End => self.end(client),
            Request::List { version: is } => version(is).and_then(|()| self.list(client)),
            Request::Read {
                version: is,
                which,
                history,
                follow,
            } => match version(is).and_then(|()| self.read(client, which, history, follow)) {
                Ok(None) => return,
                Ok(Some(response)) => Ok(response),
                Err(refusal) => Err(refusal),
            },
            Request::Status { version: is } => version(is).map(|()| self.status()),
        };
        client.answer(&answered.unwrap_or_else(Response::from));
    }

    fn register(
        &mut self,
        client: &mut Client,
        register: Box<Register>,
    ) -> Result<Response, Refusal> {
        version(register.version)?;
        if !matches!(client.tracing, Tracing::None) {
            return Err(no("this connection has a trace already: open another one"));
        }
        let others = self.clients.values();
        let waiting = others.filter_map(|client| match &client.tracing {
            Tracing::Registered(registered) => Some(registered),
            _ => None,
        });
        let (registered, blind) = self.core.register(caller(client), register, waiting)?;
        let trace = registered.id;
        client.tracing = Tracing::Registered(registered);
        Ok(Response::Registered { trace, blind })
    }

    fn forbid(&mut self, client: &mut Client, with: &[OwnedFd]) -> Result<Response, Refusal> {
        if with.is_empty() || with.len() > DESCRIPTORS {
            return Err(no("no descriptors, or too many"));
        }
        let caller = caller(client);
        let (taken, blind) = match &mut client.tracing {
            Tracing::None => return Err(no("register a trace first")),
            Tracing::Registered(registered) => self.core.forbid_later(&caller, registered, with)?,
            Tracing::Begun(id) => self.core.forbid_now(&caller, *id, with)?,
        };
        Ok(Response::Forbidden { taken, blind })
    }

    fn begin(&mut self, client: &mut Client) -> Result<Response, Refusal> {
        match std::mem::take(&mut client.tracing) {
            Tracing::None => Err(no("register a trace first")),
            Tracing::Begun(id) => {
                client.tracing = Tracing::Begun(id);
                Err(no("it has begun already"))
            }
            Tracing::Registered(registered) => {
                client.tracing = Tracing::Begun(self.core.begin(client.peer.uid, registered)?);
                Ok(Response::Done)
            }
        }
    }

    fn end(&mut self, client: &Client) -> Result<Response, Refusal> {
        let Tracing::Begun(id) = client.tracing else {
            return Err(no("no trace has begun here"));
        };
        self.core.end_asked(id).map(|()| Response::Done)
    }

    fn list(&mut self, client: &Client) -> Result<Response, Refusal> {
        let mut room = LINES_BYTES;
        let mut fits = |listed: &Listed| {
            let words = [&listed.session, &listed.step].into_iter().flatten();
            let size = 64 + listed.node.len() + words.map(String::len).sum::<usize>();
            let left = room.checked_sub(size);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let all = self.core.trails.list(client.peer.uid).map_err(unreadable)?;
        let listed = all.into_iter().take_while(|listed| fits(listed));
        Ok(Response::Trails(listed.collect()))
    }

    /// Begins to read; no answer: it comes by itself.
    fn read(
        &mut self,
        client: &mut Client,
        which: Which,
        history: bool,
        follow: bool,
    ) -> Result<Option<Response>, Refusal> {
        if !matches!(client.tracing, Tracing::None) {
            return Err(no("this connection has a trace: open another one to read"));
        }
        let viewer = client.peer.uid;
        let which = match which {
            Which::Newest => match self.core.trails.newest(viewer).map_err(unreadable)? {
                Some(which) => which,
                None => return Err(no("nothing of yours has been recorded here")),
            },
            which => which,
        };
        if !history && !follow {
            return Ok(Some(Response::Done));
        }
        // What is written up to now is read; what comes later is live: none is missed, none is sent twice.
        self.spread();
        if history {
            let reader = self.core.trails.reader(viewer, &which);
            client.reader = Some(reader.map_err(unreadable)?);
        }
        client.done_after_reading = !follow;
        if follow {
            client.follow = Some(Follow { which });
            self.followers += 1;
            self.core.trails.watch(true);
        }
        Ok(None)
    }

    fn status(&mut self) -> Response {
        let about = self.core.kernel.about();
        let state = self.core.trails.state();
        Response::Status(Box::new(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: about.kernel.clone(),
            object: about.object.clone(),
            enforces: about.enforces,
            blind: about.blind.clone(),
            proved: about.proved.clone(),
            traces: u32::try_from(self.core.registry.len()).unwrap_or(u32::MAX),
            events: state.events,
            lost: state.lost + self.core.kernel.misses() + self.core.unreadable,
            records: self.core.config.records.display().to_string(),
            trouble: state.trouble.into_iter().take(16).collect(),
        }))
    }
}
