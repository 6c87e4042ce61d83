//! A request of a shim, and what is needed to carry it out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::Stream;

use super::cluster;
use super::parse::{self, Parsed, Table};
use crate::audit::Entry;
use crate::closing::Received;
use crate::conn::Conn;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::variables::Variables;

/// What the shim was called with. All of it is hostile.
#[derive(Debug)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The current directory inside the jail.
    pub cwd: PathBuf,
    /// The environment inside the jail.
    pub environment: Variables,
    /// `umask(2)`
    pub umask: u32,
}

/// What a command has to work with.
pub struct Context<'a> {
    /// The session.
    pub session: Rc<Session>,
    /// The shim.
    pub conn: &'a mut Conn,
    /// The request.
    pub request: Request,
    /// The shim's standard streams, until they are handed on.
    pub streams: Option<[Received; 3]>,
    /// What will be recorded.
    pub entry: &'a mut Entry,
}

impl Context<'_> {
    /// The request, read for the Slurm that is there.
    ///
    /// # Errors
    /// An option is refused, unknown or malformed.
    pub async fn parsed(&self) -> Result<Parsed, Refusal> {
        let release = cluster::release(&self.session).await;
        let Request {
            command,
            arguments,
            environment,
            ..
        } = &self.request;
        parse::parse(*command, release, arguments, environment)
    }

    /// The options of its command in the Slurm that is there.
    ///
    /// # Errors
    /// The command is refused as a whole.
    pub async fn table(&self) -> Result<Table, Refusal> {
        parse::table(self.request.command, cluster::release(&self.session).await)
    }

    /// The shim's streams, to be handed on.
    ///
    /// # Errors
    /// They are gone already.
    pub fn take_streams(&mut self) -> Result<[Received; 3], Refusal> {
        let streams = self.streams.take();
        streams.ok_or_else(|| Refusal::mistake("the standard streams were handed on already"))
    }

    /// Says something on the shim's standard error, under the command's name. A shim that is gone
    /// hears nothing; that shows elsewhere.
    pub async fn say(&self, text: &str) {
        let line = format!("{}: {text}\n", self.request.command);
        let _ = self.conn.output(Stream::Error, line.as_bytes()).await;
    }
}
