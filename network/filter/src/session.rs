//! What all connections of a session share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use agent_sandbox_hosts::{Host, HostRules, Name};

use crate::book::Book;
use crate::broker::Broker;
use crate::event::{Event, Events, Verdict};
use crate::outside::Outside;
use crate::pace::Pace;
use crate::place::Place;

pub(crate) struct Session {
    rules: RwLock<Arc<HostRules>>,
    /// Tells connections that there are other rules.
    replaced: tokio::sync::watch::Sender<()>,
    pub(crate) book: Mutex<Book>,
    /// What exchanges credentials, if there are any.
    pub(crate) broker: Option<Broker>,
    pub(crate) outside: Arc<dyn Outside>,
    pub(crate) events: Events,
    /// How fast names are asked for, over all connections.
    pub(crate) pace: tokio::sync::Mutex<Pace>,
}

impl Session {
    pub(crate) fn new(
        rules: HostRules,
        broker: Option<Broker>,
        outside: Arc<dyn Outside>,
        events: Events,
    ) -> Self {
        Self {
            rules: RwLock::new(Arc::new(rules)),
            replaced: tokio::sync::watch::Sender::default(),
            book: Mutex::default(),
            broker,
            outside,
            events,
            pace: tokio::sync::Mutex::new(Pace::new()),
        }
    }

    /// The rules as they are now.
    pub(crate) fn rules(&self) -> Arc<HostRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Other rules, for connections to come; those that there are end if their hosts are not allowed any more.
    pub(crate) fn replace_rules(&self, rules: HostRules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.replaced.send_replace(());
    }

    /// Waits until the rules do not allow a host any more, or not at the address at which it was reached.
    pub(crate) async fn forbidden(&self, host: &Host, port: u16, place: &Place) {
        let mut replaced = self.replaced.subscribe();
        loop {
            let rules = self.rules();
            let allowed = rules.judge(host, port).is_ok()
                && place.address().is_none_or(|address| {
                    let own = self.outside.is_own(address.to_canonical());
                    rules.judge_address(host, address, port, own).is_ok()
                });
            // The sender lives as long as this.
            if !allowed || replaced.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whom an address inside stands for; none: nobody was given it.
    pub(crate) fn host_at(&self, address: IpAddr, port: u16) -> Option<Host> {
        let address = address.to_canonical();
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = book.name_at(address) {
            return Some(Host::Name(name.clone()));
        }
        let literal = Host::Address(address);
        // `localhost` inside is the jail's own loopback: a rule that names it means the host's.
        if address.is_loopback() && self.rules().judge(&literal, port).is_err() {
            return Name::parse("localhost").ok().map(Host::Name);
        }
        let own = matches!(address, IpAddr::V4(v4) if matches!(v4.octets(), [198, 18 | 19, ..]));
        (!own).then_some(literal)
    }

    /// Whom an address stands for to a program that has the host's own `/etc/hosts`: where nothing allows the address, a name that
    /// stands there for it and is allowed.
    pub(crate) fn host_by_hosts_file(&self, address: IpAddr, port: u16) -> Option<Host> {
        let host = self.host_at(address, port)?;
        let rules = self.rules();
        let given = matches!(&host, Host::Name(name) if !name.is_localhost());
        if given || rules.judge(&host, port).is_ok() {
            return Some(host);
        }
        let names = self.outside.names_at(address.to_canonical());
        let mut names = names.into_iter().map(Host::Name);
        let allowed = names.find(|name| rules.judge(name, port).is_ok());
        Some(allowed.unwrap_or(host))
    }

    /// Whether the host that a program names, in TLS or HTTP, is the one that it is connected to. A bare address that is allowed
    /// may be called by any name that is allowed.
    pub(crate) fn agrees(&self, host: &Host, port: u16, said: &Host) -> bool {
        if host == said {
            return true;
        }
        match (host, said) {
            (Host::Address(_), Host::Name(_)) => self.rules().judge(said, port).is_ok(),
            (Host::Name(name), Host::Address(address)) => {
                name.is_localhost() && address.is_loopback()
            }
            _ => false,
        }
    }

    /// Tells what became of a connection, with the address that stands for its host inside.
    pub(crate) fn tell(&self, event: Event) {
        let name = Name::from_wire(&event.host).ok();
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = name.and_then(|name| book.known(&name));
        drop(book);
        self.events.tell(Event { inside, ..event });
    }

    /// Tells that a host is refused for a reason that is no rule's.
    pub(crate) fn refuse(&self, host: &Host, port: u16, why: &str) -> Event {
        let why = format!("{host}:{port} is not reached: {why}");
        let event = Event {
            host: host.to_string(),
            port: Some(port),
            inside: None,
            verdict: Verdict::Refused { why, hint: None },
        };
        self.tell(event.clone());
        event
    }
}
