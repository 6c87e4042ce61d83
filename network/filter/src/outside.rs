#![allow(
    clippy::disallowed_methods,
    reason = "effects: asks the host's resolver and routes"
)]
//! The network outside, as the filter uses it: names are resolved by the host's own resolver.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use agent_sandbox_hosts::{Host, Name};
use nix::ifaddrs::getifaddrs;
use tokio::sync::Semaphore;

use crate::proxy::Proxy;

/// Threads in which names are resolved at once. They end when nothing is asked.
pub(crate) const MOST_RESOLVING: usize = 16;
/// Names of the host's own.
const HOSTS: &str = "/etc/hosts";

/// Where names of one label are searched for (`resolv.conf(5)`).
const RESOLV_CONF: &str = "/etc/resolv.conf";

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

    /// Whether a name is that of this host, as programs inside have it as well (`gethostname(2)`), its first label, or the host's name
    /// with its domain (`hostname -f`).
    fn is_this_host(&self, _name: &Name) -> bool {
        false
    }

    /// The proxy by which a host is reached; none: directly.
    fn proxy(&self, _host: &Host, _port: u16) -> Option<Proxy> {
        None
    }
}

/// This host's network: `getaddrinfo(3)`, so that `/etc/hosts` and the site's resolver count, and its routes.
#[derive(Debug, Clone, Default)]
pub struct HostNetwork {
    /// This host's name with its domain, where `gethostname(2)` has none, once the host's resolver has said so.
    whole: Arc<OnceLock<String>>,
}

impl HostNetwork {
    /// Has this host's name with its domain looked up, beside everything else. Nothing that is asked inside is asked outside for it.
    pub(crate) fn look_up_own_name(&self) {
        let whole = Arc::clone(&self.whole);
        let look_up = move || {
            let host = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
            let searched = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
            let ask = |name: &str| -> Vec<IpAddr> {
                let found = (format!("{name}."), 0).to_socket_addrs();
                found.into_iter().flatten().map(|at| at.ip()).collect()
            };
            if let Some(name) = whole_name(&host, &searched, ask, is_own) {
                let _ = whole.set(name);
            }
        };
        // Without a thread the name is as unknown as without a resolver.
        let _ = std::thread::Builder::new().spawn(look_up);
    }
}

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
        let Ok(host) = std::fs::read_to_string(HOSTNAME) else {
            return false;
        };
        let said = || std::fs::read(HOSTS).unwrap_or_default();
        calls(&host, name)
            || self.whole.get().is_some_and(|whole| calls(whole, name))
            || hosts_file_calls(&host, name, &said(), is_own)
    }

    /// The kernel sends to its own addresses from the same address: `connect(2)` of a datagram socket looks up the route, and
    /// sends nothing. But to a second address of a network that an interface is in, it sends from the first: so the list of
    /// addresses counts as well. What cannot be asked counts as the host's own.
    fn is_own(&self, address: IpAddr) -> bool {
        is_own(address)
    }
}

fn is_own(address: IpAddr) -> bool {
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
        Ok(from) => from.ip() == address || is_of_an_interface(address),
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

fn is_of_an_interface(address: IpAddr) -> bool {
    // What no socket can be bound to is none; that is known in some microseconds, and the list takes a hundred. But with
    // `ip_nonlocal_bind` each can be bound to (ip-sysctl.rst).
    let bound = UdpSocket::bind(SocketAddr::new(address, 0));
    if bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable) {
        return false;
    }
    let Ok(mut all) = getifaddrs() else {
        return true;
    };
    all.any(|one| {
        let Some(at) = one.address else { return false };
        let v4 = at.as_sockaddr_in().map(|at| IpAddr::from(at.ip()));
        let v6 = at.as_sockaddr_in6().map(|at| IpAddr::from(at.ip()));
        v4.or(v6) == Some(address)
    })
}

/// Whether a host of this name, as `gethostname(2)` has it, is called so.
fn calls(host: &str, name: &Name) -> bool {
    let host = host.trim();
    let first = host.split('.').next().unwrap_or_default();
    [host, first]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name.as_str()))
}

/// The name of a host, as `gethostname(2)` has it without a domain, in the first domain of `resolv.conf(5)` in which it has addresses; none
/// if these are another host's.
fn whole_name(
    host: &str,
    resolv_conf: &str,
    ask: impl Fn(&str) -> Vec<IpAddr>,
    is_own: impl Fn(IpAddr) -> bool,
) -> Option<String> {
    let host = host.trim();
    if host.is_empty() || host.contains('.') {
        return None;
    }
    // The last such line holds.
    let mut lines = resolv_conf.lines().rev().map(str::split_whitespace);
    let searched = lines
        .find_map(|mut words| matches!(words.next()?, "search" | "domain").then_some(words))?;
    let names = searched.map(|domain| format!("{host}.{}", domain.trim_matches('.')));
    let mut found = names.map(|name| (ask(&name), name));
    let (addresses, name) = found.find(|(addresses, _)| !addresses.is_empty())?;
    addresses.into_iter().any(is_own).then_some(name)
}

/// Whether `hosts(5)` has a host by this name, which is its own with a domain, at an address of its own.
fn hosts_file_calls(host: &str, name: &Name, text: &[u8], is_own: impl Fn(IpAddr) -> bool) -> bool {
    let first = name.as_str().split_once('.').map(|(first, _)| first);
    if !first.is_some_and(|first| first.eq_ignore_ascii_case(host.trim())) {
        return false;
    }
    hosts_file(text)
        .any(|(at, word)| word.eq_ignore_ascii_case(name.as_str()) && at.parse().is_ok_and(&is_own))
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

    /// By the resolver: only in domains that the host searches, and only if it is this host that has the name there.
    #[test]
    fn a_hosts_name_with_its_domain_is_its_own_where_it_has_its_address() {
        let own: IpAddr = "10.0.0.5".parse().unwrap();
        let is_own = |address: IpAddr| address == own;
        let ask = |name: &str| match name {
            "n1.cluster.example" => vec!["192.0.2.1".parse().unwrap(), own],
            "n2.cluster.example" => vec!["192.0.2.2".parse().unwrap()],
            "n2.example" => vec![own],
            _ => Vec::new(),
        };
        let whole = |host, text| whole_name(host, text, ask, is_own);
        let conf = "search old.example\nnameserver 192.0.2.53\nsearch none.example cluster.example. example\n";
        assert_eq!(whole("n1\n", conf).unwrap(), "n1.cluster.example");
        assert_eq!(
            whole("n1", "domain cluster.example").unwrap(),
            "n1.cluster.example"
        );
        // Another host has the name, or nobody; it has a domain already; nothing is searched.
        for (host, text) in [
            ("n2", conf),
            ("n3", conf),
            ("n1.cluster.example", conf),
            ("", conf),
            ("n1", "search\n"),
            ("n1", ""),
        ] {
            assert_eq!(whole(host, text), None, "{host} {text}");
        }
    }

    #[test]
    fn a_hosts_name_with_its_domain_is_its_own_by_the_hosts_file() {
        let is_own = |address: IpAddr| address.to_string().starts_with("127.");
        let text =
            b"127.0.1.1 n1.cluster.example n1 other.example\n192.0.2.2 n1.elsewhere.example\n";
        let calls = |name| hosts_file_calls("n1\n", &Name::parse(name).unwrap(), text, is_own);
        assert!(calls("n1.cluster.example") && calls("N1.cluster.example"));
        for name in [
            "n1",
            "other.example",
            "n1.elsewhere.example",
            "n1.x.example",
        ] {
            assert!(!calls(name), "{name}");
        }
    }

    /// In a network of its own: the test program once more.
    #[test]
    fn each_address_of_an_interface_is_the_hosts_own() {
        const TEST: &str = "outside::tests::each_address_of_an_interface_is_the_hosts_own";
        const ALONE: &str = "AGENT_SANDBOX_TEST_ALONE";
        if std::env::var_os(ALONE).is_some() {
            let own = |address: &str| HostNetwork::default().is_own(address.parse().unwrap());
            assert!(own("198.51.100.1") && own("198.51.100.2") && own("2001:db8::2"));
            assert!(!own("198.51.100.3") && !own("2001:db8::3"));
            return;
        }
        let script = "ip link set lo up && ip address add 198.51.100.1/24 dev lo && ip address add 198.51.100.2/24 dev lo && \
                      ip address add 2001:db8::1/32 dev lo nodad && ip address add 2001:db8::2/32 dev lo nodad || exit 77; \
                      exec \"$0\" --exact --nocapture \"$1\"";
        let again = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(TEST)
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout) + String::from_utf8_lossy(&again.stderr);
        if !said.contains("running 1 test") {
            return agent_sandbox_support::not_checked(TEST, "no network of one's own can be made");
        }
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }

    #[test]
    fn loopback_is_the_hosts_own() {
        let network = HostNetwork::default();
        assert!(network.is_own("127.0.0.1".parse().unwrap()));
        assert!(!network.is_own("192.0.2.1".parse().unwrap()));
    }
}
