#![allow(
    clippy::disallowed_methods,
    reason = "effects: asks the host's resolver and routes"
)]
//! The network outside, as the filter uses it: names are resolved by the host's own resolver.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::pin::Pin;

use agent_sandbox_hosts::{Host, Name};
use tokio::sync::Semaphore;

use crate::proxy::Proxy;

/// Threads in which names are resolved at once. They end when nothing is asked.
pub(crate) const MOST_RESOLVING: usize = 16;
/// Names of the host's own.
const HOSTS: &str = "/etc/hosts";

/// What `gethostname(2)` answers (`proc_sys_kernel(5)`).
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Addresses to come.
pub type Addresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// What the filter asks of the network outside.
pub trait Outside: Send + Sync + 'static {
    /// The addresses of a name, in the order in which they shall be tried.
    fn resolve<'a>(&'a self, name: &'a Name, port: u16) -> Addresses<'a>;

    /// Whether an address is one of this host's own.
    fn is_own(&self, address: IpAddr) -> bool;

    /// The names that stand for an address in `hosts(5)`, in their order there.
    fn names_at(&self, _address: IpAddr) -> Vec<Name> {
        Vec::new()
    }

    /// Whether a name is that of this host, as programs inside have it as well (`gethostname(2)`), or its first label.
    fn is_this_host(&self, _name: &Name) -> bool {
        false
    }

    /// The proxy by which a host is reached; none: directly.
    fn proxy(&self, _host: &Host, _port: u16) -> Option<Proxy> {
        None
    }
}

/// This host's network: `getaddrinfo(3)`, so that `/etc/hosts` and the site's resolver count, and its routes.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostNetwork;

impl Outside for HostNetwork {
    fn resolve<'a>(&'a self, name: &'a Name, port: u16) -> Addresses<'a> {
        Box::pin(async move {
            // With the root's dot it is no name of a search list's, which would lead to somebody else's host. `/etc/hosts` has
            // names without it, and a name of one label is meant to be searched for.
            let searched = !name.as_str().contains('.');
            if name.is_localhost() || searched || is_in_hosts_file(name.as_str()) {
                return ask(name.to_string(), port).await;
            }
            ask(format!("{name}."), port).await
        })
    }

    fn names_at(&self, address: IpAddr) -> Vec<Name> {
        let text = std::fs::read(HOSTS).unwrap_or_default();
        let is_it = |said: &str| said.parse().is_ok_and(|said: IpAddr| said == address);
        hosts_file(&text)
            .filter(|(said, _)| is_it(said))
            .filter_map(|(_, name)| Name::parse(&name).ok())
            .collect()
    }

    fn is_this_host(&self, name: &Name) -> bool {
        std::fs::read_to_string(HOSTNAME).is_ok_and(|host| calls(&host, name))
    }

    /// The kernel sends to its own addresses from the same address: `connect(2)` of a datagram socket looks up the route, and
    /// sends nothing. What cannot be asked counts as the host's own.
    fn is_own(&self, address: IpAddr) -> bool {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = || {
            let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
            socket.connect(SocketAddr::new(address, 9))?;
            socket.local_addr()
        };
        match from() {
            Ok(from) => from.ip() == address,
            // No route to it: nothing will be reached there either.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable
                ) =>
            {
                false
            }
            Err(_) => true,
        }
    }
}

/// Whether a host of this name, as `gethostname(2)` has it, is called so.
fn calls(host: &str, name: &Name) -> bool {
    let host = host.trim();
    let first = host.split('.').next().unwrap_or_default();
    [host, first]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name.as_str()))
}

/// Asks the host's resolver. At most so many questions wait for it at once; a question that nobody waits for any more is not asked.
async fn ask(name: String, port: u16) -> io::Result<Vec<IpAddr>> {
    static ROOM: Semaphore = Semaphore::const_new(MOST_RESOLVING);
    let permit = ROOM.acquire().await.map_err(io::Error::other)?;
    let asked = tokio::task::spawn_blocking(move || {
        let found = (name.as_str(), port).to_socket_addrs();
        drop(permit);
        found
    });
    Ok(asked.await??.map(|at| at.ip()).collect())
}

/// Whether `hosts(5)` has the name.
fn is_in_hosts_file(name: &str) -> bool {
    hosts_file(&std::fs::read(HOSTS).unwrap_or_default())
        .any(|(_, word)| word.eq_ignore_ascii_case(name))
}

/// What `hosts(5)` says: addresses, each with a name.
fn hosts_file(text: &[u8]) -> impl Iterator<Item = (String, String)> {
    let text = String::from_utf8_lossy(text).into_owned();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.into_iter().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace().map(str::to_owned);
        let address = words.next().unwrap_or_default();
        let names: Vec<String> = words.collect();
        names.into_iter().map(move |name| (address.clone(), name))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn each_name_of_the_hosts_file_has_its_address() {
        let text = b"# nothing\n127.0.0.1 localhost\n10.0.0.5\tA.example a # b\n\n::1\n";
        let all: Vec<_> = hosts_file(text).collect();
        let said: Vec<_> = all.iter().map(|(at, name)| (&**at, &**name)).collect();
        assert_eq!(
            said,
            [
                ("127.0.0.1", "localhost"),
                ("10.0.0.5", "A.example"),
                ("10.0.0.5", "a")
            ]
        );
    }

    #[test]
    fn a_host_is_called_by_its_name_with_and_without_its_domain() {
        let calls = |host, name| calls(host, &Name::parse(name).unwrap());
        for name in ["n1", "N1", "n1.cluster.example"] {
            assert!(calls("n1.cluster.example\n", name), "{name}");
        }
        for name in [
            "n11",
            "n",
            "cluster.example",
            "x.n1.cluster.example",
            "n1.cluster",
        ] {
            assert!(!calls("n1.cluster.example\n", name), "{name}");
        }
        assert!(calls("n1\n", "n1") && !calls("", "n1"));
    }

    #[test]
    fn loopback_is_the_hosts_own() {
        assert!(HostNetwork.is_own("127.0.0.1".parse().unwrap()));
        assert!(!HostNetwork.is_own("192.0.2.1".parse().unwrap()));
    }
}
