//! Requests: what may be asked on a connection, and what is answered.

use std::os::fd::OwnedFd;

use agent_sandbox_events::mark::{Claim, DIGEST, is_name};
use agent_sandbox_events::protocol::{
    DESCRIPTORS, OPENED, Register, Request, Response, Status, VERSION,
};

use super::Service;
use super::client::{Client, Tracing};
use crate::service::core::register::Caller;
use crate::service::kernel::Kernel;
use crate::service::refusal::{Refusal, instead, no};
use crate::trail::Now;

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
        mark: client.mark,
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
            Request::Files {
                version: is,
                which,
                after,
            } => version(is).and_then(|()| {
                let viewer = client.peer.uid;
                let found = self.core.trails.files(viewer, &which, after.as_ref());
                found.map(Response::Files).map_err(unreadable)
            }),
            Request::Open { version: is, files } => {
                let opened = version(is).and_then(|()| self.open(client.peer.uid, &files));
                match opened {
                    Ok((there, with)) => {
                        return client.answer_with(&Response::Opened(there), with);
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Request::Status { version: is } => version(is).map(|()| self.status()),
            Request::Audit(handed) => version(handed.version)
                .and_then(|()| self.core.audit(&caller(client), &handed))
                .map(|()| Response::Done),
            Request::Mark {
                version: is,
                session,
                cluster,
                script,
            } => version(is).and_then(|()| self.mark(client.peer.uid, session, cluster, &script)),
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

    /// Opens files of trails to be read, as far as they are there and the user may.
    fn open(
        &self,
        viewer: u32,
        files: &[(u32, String)],
    ) -> Result<(Vec<bool>, Vec<OwnedFd>), Refusal> {
        if files.len() > OPENED {
            return Err(no(format!("at most {OPENED} files at a time")));
        }
        let opened = files
            .iter()
            .map(|(uid, name)| self.core.trails.open_file(viewer, *uid, name));
        let opened: Vec<Option<OwnedFd>> = opened.collect::<Result<_, _>>().map_err(unreadable)?;
        let there = opened.iter().map(Option::is_some).collect();
        Ok((there, opened.into_iter().flatten().collect()))
    }

    /// Signs a script. That it is one which enters the jail is for the verifier to see, who has it; what is signed here is
    /// who asked, where and when, and that there is a trail of the session.
    fn mark(
        &self,
        uid: u32,
        session: String,
        cluster: String,
        script: &[u8; DIGEST],
    ) -> Result<Response, Refusal> {
        let Some(key) = &self.mark_key else {
            return Err(instead(
                "jobs are not marked here",
                "admin: `agent-sandbox-tracer key` makes the key, and a reload has it used",
            ));
        };
        if !is_name(&session) || !is_name(&cluster) {
            return Err(no("no name of a session, or none of a cluster"));
        }
        let mut all = self.core.registry.iter().map(|(_, trace)| &trace.trail);
        if !all.any(|trail| trail.uid == uid && trail.session.as_ref() == Some(&session)) {
            return Err(no("no session of yours with this name is traced here"));
        }
        let claim = Claim {
            cluster,
            uid,
            session,
            node: self.core.node().to_owned(),
            time: Now::read().seconds(),
        };
        Ok(Response::Marked(key.sign(claim, script).to_string()))
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
