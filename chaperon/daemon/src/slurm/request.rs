//! A request of a shim, and what is needed to carry it out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;

use crate::audit::Entry;
use crate::closing::Received;
use crate::conn::Conn;
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
