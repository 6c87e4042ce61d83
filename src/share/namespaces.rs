//! The namespaces of a step, and the ways into them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys::namespaces::{self, Kind};

/// The namespaces of a step, held by descriptors. bubblewrap puts its payload into a user namespace
/// below the one that owns the others, so that nothing inside has a right over them.
#[derive(Debug)]
pub struct Namespaces {
    /// The user namespace that owns the others.
    owner: OwnedFd,
    user: OwnedFd,
    ipc: OwnedFd,
    uts: OwnedFd,
    mount: OwnedFd,
    pid: OwnedFd,
    network: OwnedFd,
}

impl Namespaces {
    /// Takes them as init hands them out: user, ipc, uts, mount, pid, network.
    ///
    /// # Errors
    /// Others were handed out, or they are not of this user.
    pub fn take(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let count = descriptors.len();
        let all: [OwnedFd; 6] = descriptors
            .try_into()
            .map_err(|_| io::Error::other(format!("{count} namespaces were handed out, not 6")))?;
        let [user, ipc, uts, mount, pid, network] = all;
        let owner = namespaces::owner(&ipc)?;
        let expected = [
            (&owner, Kind::User),
            (&user, Kind::User),
            (&ipc, Kind::Ipc),
            (&uts, Kind::Uts),
            (&mount, Kind::Mount),
            (&pid, Kind::Pid),
            (&network, Kind::Network),
        ];
        for (descriptor, kind) in expected {
            if namespaces::kind_of(descriptor)? != kind {
                return Err(io::Error::other(format!("a namespace is not of {kind:?}")));
            }
        }
        if namespaces::owner_uid(&owner)? != nix::unistd::getuid().as_raw() {
            return Err(io::Error::other("the namespaces are another user's"));
        }
        if !namespaces::same(namespaces::parent(&owner)?, namespaces::own(Kind::User)?)? {
            return Err(io::Error::other("the namespaces are another jail's"));
        }
        Ok(Self {
            owner,
            user,
            ipc,
            uts,
            mount,
            pid,
            network,
        })
    }

    /// The descriptors, in the order of [`Self::take`].
    pub fn lent(&self) -> [BorrowedFd<'_>; 6] {
        [
            &self.user,
            &self.ipc,
            &self.uts,
            &self.mount,
            &self.pid,
            &self.network,
        ]
        .map(AsFd::as_fd)
    }

    /// The network namespace.
    pub fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// The numbers of all descriptors, for who closes all others.
    pub fn descriptors(&self) -> [RawFd; 7] {
        [
            &self.owner,
            &self.user,
            &self.ipc,
            &self.uts,
            &self.mount,
            &self.pid,
            &self.network,
        ]
        .map(AsRawFd::as_raw_fd)
    }

    /// Enters those that all steps of the jail share, with every right over them. The process must
    /// have one thread.
    ///
    /// # Errors
    /// What `setns(2)` answers.
    pub fn enter_shared(&self) -> io::Result<()> {
        let own_network = namespaces::own(Kind::Network)?;
        namespaces::enter(&self.owner, Kind::User)?;
        namespaces::enter(&self.ipc, Kind::Ipc)?;
        namespaces::enter(&self.uts, Kind::Uts)?;
        // The host's own cannot be entered, and need not be.
        if !namespaces::same(&self.network, &own_network)? {
            namespaces::enter(&self.network, Kind::Network)?;
        }
        namespaces::enter(&self.mount, Kind::Mount)
    }

    /// Enters the pid namespace as well: children of this process will be in the step.
    ///
    /// # Errors
    /// What `setns(2)` answers.
    pub fn enter_room(&self) -> io::Result<()> {
        self.enter_shared()?;
        self.enter_pids()?;
        // Each task sees its own cgroup as the root, as the first task of a jail does.
        namespaces::leave(&[Kind::Cgroup])
    }

    /// Enters the pid namespace alone, after [`Self::enter_shared`].
    ///
    /// # Errors
    /// What `setns(2)` answers.
    pub fn enter_pids(&self) -> io::Result<()> {
        namespaces::enter(&self.pid, Kind::Pid)
    }

    /// Gives the rights over the jail up: enters the user namespace of those inside.
    ///
    /// # Errors
    /// What `setns(2)` answers.
    pub fn enter_user(&self) -> io::Result<()> {
        // With `jail.nested` there may be only one.
        if namespaces::same(&self.user, &self.owner)? {
            return Ok(());
        }
        namespaces::enter(&self.user, Kind::User)
    }
}
