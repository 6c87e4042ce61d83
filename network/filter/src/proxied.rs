//! This host's network, with the site's proxies as its variables name them.

use std::net::IpAddr;

use agent_sandbox_hosts::{Host, Name};
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use crate::outside::{Addresses, HostNetwork, Outside};
use crate::proxy::Proxy;

/// The port of a proxy whose URL names none (RFC 9110, 4.2.1).
const USUAL_PORT: u16 = 80;

/// This host's network, with the site's proxies.
pub struct ProxiedNetwork {
    host: HostNetwork,
    proxies: Matcher,
}

impl ProxiedNetwork {
    /// With the values of `http_proxy` (for port 80), `https_proxy` (for others) and `all_proxy`, and that of `no_proxy`. Empty: none.
    ///
    /// # Errors
    /// A sentence: which is no proxy that can be used. A value is not shown, for there may be a password in it.
    pub fn new([http, https, all]: [&str; 3], none: &str) -> Result<Self, String> {
        for (name, value) in [
            ("http_proxy", http),
            ("https_proxy", https),
            ("all_proxy", all),
        ] {
            let alone = Matcher::builder().all(value.to_owned()).build();
            let found = uri(USUAL_PORT, "a.example").and_then(|uri| alone.intercept(&uri));
            let usable = found.is_some_and(|found| found.uri().scheme_str() == Some("http"));
            if !value.is_empty() && !usable {
                return Err(format!(
                    "`{name}` names no proxy that a filter can use: a URL that begins with `http://` does"
                ));
            }
        }
        let proxies = Matcher::builder()
            .http(http.to_owned())
            .https(https.to_owned())
            .all(all.to_owned())
            .no(none.to_owned());
        let host = HostNetwork::default();
        host.look_up_own_name();
        Ok(Self {
            host,
            proxies: proxies.build(),
        })
    }
}

/// A host as a URL has it. For the variables port 80 is that of HTTP, and all others are those of HTTPS.
fn uri(port: u16, host: &str) -> Option<Uri> {
    let scheme = if port == 80 { "http" } else { "https" };
    format!("{scheme}://{host}:{port}/").parse().ok()
}

impl Outside for ProxiedNetwork {
    fn resolve<'a>(&'a self, name: &'a Name, port: u16) -> Addresses<'a> {
        self.host.resolve(name, port)
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.host.is_own(address)
    }

    fn names_at(&self, address: IpAddr) -> Vec<Name> {
        self.host.names_at(address)
    }

    fn is_this_host(&self, name: &Name) -> bool {
        self.host.is_this_host(name)
    }

    fn proxy(&self, host: &Host, port: u16) -> Option<Proxy> {
        let via = self.proxies.intercept(&uri(port, &host.to_string())?)?;
        let at = via.uri();
        let name = at.host()?.trim_start_matches('[').trim_end_matches(']');
        let authorization = via.basic_auth().and_then(|value| value.to_str().ok());
        Some(Proxy {
            host: name.to_owned(),
            port: at.port_u16().unwrap_or(USUAL_PORT),
            authorization: authorization.map(str::to_owned),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn the_sites_variables_say_who_is_reached_by_which_proxy() {
        let none = "localhost,.near.example,10.0.0.0/8,other.example";
        let network = ProxiedNetwork::new(
            [
                "http://web.example:3128",
                "http://u:p%40ss@[2001:db8::1]:8080",
                "",
            ],
            none,
        )
        .unwrap();
        let via = |host: &str, port| network.proxy(&Host::parse(host).unwrap(), port);
        let web = via("a.example", 80).unwrap();
        assert_eq!((web.host.as_str(), web.port), ("web.example", 3128));
        let other = via("a.example", 22).unwrap();
        assert_eq!((other.host.as_str(), other.port), ("2001:db8::1", 8080));
        assert_eq!(other.authorization.as_deref(), Some("Basic dTpwQHNz"));
        assert!(!format!("{other:?}").contains("dTpw"));
        for near in [
            "x.near.example",
            "10.1.2.3",
            "other.example",
            "x.other.example",
        ] {
            assert_eq!(via(near, 443), None, "{near}");
        }
        assert!(via("2001:db8::9", 443).is_some());
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_being_shown() {
        for value in [
            "socks5://u:secret@a:1080",
            "https://u:secret@a",
            "http://u:secret@ b",
        ] {
            let Err(why) = ProxiedNetwork::new(["", value, ""], "") else {
                panic!("{value}");
            };
            assert!(
                why.contains("https_proxy") && !why.contains("secret"),
                "{why}"
            );
        }
        assert!(ProxiedNetwork::new(["", "", ""], "").is_ok());
    }
}
