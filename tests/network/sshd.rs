//! A real server for ssh in the network around a session.

use std::path::PathBuf;

use agent_sandbox_support::waiting::until;

use crate::clients::found;
use crate::outside::{Outside, Running, start};

/// A server for ssh.
pub(crate) struct Sshd {
    program: PathBuf,
    /// Where one of this run's own is.
    own: String,
}

/// One that this machine has, or that was unpacked for this run.
pub(crate) fn sshd() -> Option<Sshd> {
    let tools = std::env::var("AGENT_SANDBOX_TEST_PYTHON").unwrap_or_default();
    let own = format!("{tools}/sshd");
    let program = found(&["/usr/sbin/sshd", &format!("{own}/sshd")])?;
    Some(Sshd { program, own })
}

impl Sshd {
    /// Starts it at port 22. It lets in whoever has the key `user` beside the servers.
    pub(crate) fn start(&self, net: &Outside) -> Running {
        let (own, at) = (&self.own, net.served("").display().to_string());
        net.prepare(&format!(
            "ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f user
            printf '%s\\n' 'Port 22' 'HostKey {at}/host' 'PidFile none' 'UsePAM no' 'StrictModes no' \
                'AuthorizedKeysFile {at}/user.pub' > sshd_config
            [ ! -e {own}/more ] || sed 's:ROOT:{own}/root:' {own}/more >> sshd_config"
        ));
        let config = net.served("sshd_config");
        let words = [
            self.program.as_os_str(),
            "-De".as_ref(),
            "-f".as_ref(),
            config.as_os_str(),
        ];
        let server = start(&mut net.command(&words));
        until("sshd listens", || {
            std::net::TcpStream::connect("9.9.9.3:22").is_ok()
        });
        server
    }

    /// A client outside, with that key.
    pub(crate) fn client(&self, net: &Outside) -> Vec<String> {
        let key = net.served("user").display().to_string();
        let known = net.served("known").display().to_string();
        let words = [
            "ssh",
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "StrictHostKeyChecking=no",
            "-i",
            &key,
            "-o",
        ];
        let words = words.map(str::to_owned).into_iter();
        words
            .chain([format!("UserKnownHostsFile={known}")])
            .collect()
    }
}
