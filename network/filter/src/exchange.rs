//! Placeholders in the headers of a request become values, and values in the headers of an answer placeholders. A placeholder
//! counts where it is all that a header says, behind the word of a scheme or not; in Basic authentication as the user or the password.
//! What stands in a body or in a target stays as it is.

use agent_sandbox_hosts::{Credential, Name};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use zeroize::Zeroizing;

/// Headers in which servers take a credential. In others a server may keep what it is sent, and show it to whoever asks.
const HEADERS: [HeaderName; 9] = [
    header::AUTHORIZATION,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("job-token"),
    HeaderName::from_static("private-token"),
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-goog-api-key"),
    HeaderName::from_static("x-subscription-token"),
    HeaderName::from_static("x-vault-token"),
];

/// The credentials of one host.
#[derive(Clone, Debug)]
pub(crate) struct Exchange(Vec<Credential>);

impl Exchange {
    /// Those of `all` that are for a host at a port. None: there is nothing to exchange.
    pub(crate) fn of(all: &[Credential], host: &Name, port: u16) -> Option<Self> {
        let those = all.iter().filter(|one| one.is_for(host, port)).cloned();
        Self::some(those.collect())
    }

    /// Those that may come without TLS.
    pub(crate) fn without_tls(self) -> Option<Self> {
        Self::some(self.0.into_iter().filter(|one| one.by_base_url).collect())
    }

    fn some(those: Vec<Credential>) -> Option<Self> {
        (!those.is_empty()).then_some(Self(those))
    }

    /// Puts values in place of placeholders.
    pub(crate) fn reveal(&self, headers: &mut HeaderMap) -> Vec<Used<'_>> {
        let mut used = Vec::new();
        for name in &HEADERS {
            let mut values = headers.get_all(name).iter();
            // Of several, one server takes the first and another the last.
            let (Some(value), None) = (values.next(), values.next()) else {
                continue;
            };
            if let Some((one, value)) = value
                .to_str()
                .ok()
                .and_then(|text| self.revealed(text.trim()))
            {
                headers.insert(name, value);
                used.push(one);
            }
        }
        used
    }

    fn revealed(&self, text: &str) -> Option<(Used<'_>, HeaderValue)> {
        let (scheme, said) = match text.split_once(' ') {
            Some((scheme, said)) => (scheme, said.trim_start()),
            None => ("", text),
        };
        let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        if !scheme.bytes().all(is_word) {
            return None;
        }
        for one in &self.0 {
            let sent = if said == one.placeholder {
                Zeroizing::new(one.value.reveal().to_owned())
            } else if let (true, Some(sent)) =
                (scheme.eq_ignore_ascii_case("basic"), basic(one, said))
            {
                sent
            } else {
                continue;
            };
            let all = Zeroizing::new(match scheme {
                "" => sent.to_string(),
                scheme => format!("{scheme} {}", *sent),
            });
            let mut value = HeaderValue::from_str(&all).ok()?;
            value.set_sensitive(true);
            let said = said.to_owned();
            return Some((
                Used {
                    credential: one,
                    said,
                    sent,
                },
                value,
            ));
        }
        None
    }

    /// Puts placeholders in place of values, and what was said in place of what was sent: a server may send it back.
    pub(crate) fn conceal(&self, used: &[Used<'_>], headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let Some(other) = self.concealed(used, value.as_bytes())
                && let Ok(other) = HeaderValue::from_bytes(&other)
            {
                *value = other;
            }
        }
    }

    /// The same of a text; `None`: nothing of it stands there.
    pub(crate) fn concealed(&self, used: &[Used<'_>], text: &[u8]) -> Option<Vec<u8>> {
        let values = self
            .0
            .iter()
            .map(|one| (one.value.reveal(), &*one.placeholder));
        let sent = used.iter().map(|one| (&**one.sent, &*one.said));
        let mut all = None;
        for (outside, inside) in values.chain(sent) {
            let text = all.as_deref().unwrap_or(text);
            all = replaced(text, outside.as_bytes(), inside.as_bytes()).or(all);
        }
        all
    }
}

/// A credential in a request.
pub(crate) struct Used<'a> {
    pub(crate) credential: &'a Credential,
    /// What the program said, behind the word of a scheme.
    said: String,
    /// What was sent in place of it.
    sent: Zeroizing<String>,
}

/// Basic authentication (RFC 7617) with the value in place of the placeholder.
fn basic(one: &Credential, token: &str) -> Option<Zeroizing<String>> {
    let said = BASE64_STANDARD.decode(token).ok()?;
    let said = std::str::from_utf8(&said).ok()?;
    let (user, password) = said.split_once(':')?;
    let value = one.value.reveal();
    let said = match (user == one.placeholder, password == one.placeholder) {
        (_, true) => format!("{user}:{value}"),
        // A user's name ends at the first colon.
        (true, false) if !value.contains(':') => format!("{value}:{password}"),
        (_, false) => return None,
    };
    let said = Zeroizing::new(said);
    Some(Zeroizing::new(BASE64_STANDARD.encode(said.as_bytes())))
}

/// The text with something else wherever `value` stood; `None`: it stands nowhere in it.
fn replaced(text: &[u8], value: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text;
    let mut all = Vec::new();
    while let Some(at) = rest.windows(value.len()).position(|part| part == value) {
        all.extend_from_slice(&rest[..at]);
        all.extend_from_slice(other);
        rest = &rest[at + value.len()..];
    }
    (rest.len() < text.len()).then(|| {
        all.extend_from_slice(rest);
        all
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    const INSIDE: &str = "0f-placeholder";
    const VALUE: &str = "ghp_value";

    fn exchange() -> Exchange {
        let credential = Credential {
            name: "a".to_owned(),
            hosts: vec![(Name::parse("a.example").unwrap(), 443)],
            placeholder: INSIDE.to_owned(),
            value: VALUE.to_owned().into(),
            by_base_url: false,
        };
        let all = [credential];
        let of = |host: &str, port| Exchange::of(&all, &Name::parse(host).unwrap(), port);
        assert!(of("x.a.example", 443).is_none() && of("a.example", 80).is_none());
        let exchange = of("a.example", 443).unwrap();
        assert!(exchange.clone().without_tls().is_none());
        exchange
    }

    fn sent(name: &str, value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        exchange().reveal(&mut headers);
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_placeholder_that_is_all_of_a_credential_is_exchanged() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for (name, inside, outside) in [
            ("authorization", "Bearer 0f-placeholder", "Bearer ghp_value"),
            ("authorization", "token  0f-placeholder", "token ghp_value"),
            ("authorization", "0f-placeholder", "ghp_value"),
            ("x-api-key", " 0f-placeholder ", "ghp_value"),
            (
                "authorization",
                &basic("u:0f-placeholder"),
                &basic("u:ghp_value"),
            ),
            (
                "authorization",
                &basic("0f-placeholder:x"),
                &basic("ghp_value:x"),
            ),
            (
                "authorization",
                &basic("0f-placeholder:"),
                &basic("ghp_value:"),
            ),
        ] {
            assert_eq!(sent(name, inside), outside, "{name}: {inside}");
        }
    }

    #[test]
    fn a_placeholder_anywhere_else_stays() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        for (name, inside) in [
            ("authorization", "Bearer 0f-placeholder2"),
            (
                "authorization",
                "Bearer 0f-placeholder, Bearer 0f-placeholder",
            ),
            ("authorization", "Bearer a 0f-placeholder"),
            ("authorization", "Digest username=\"0f-placeholder\""),
            ("authorization", &basic("u:x:0f-placeholder")),
            ("authorization", &basic("u:0f-placeholder ")),
            ("authorization", "Basic !!!"),
            ("user-agent", "0f-placeholder"),
            ("x-amz-meta-a", "0f-placeholder"),
            ("cookie", "0f-placeholder"),
        ] {
            assert_eq!(sent(name, inside), inside.trim(), "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.append("x-api-key", INSIDE.parse().unwrap());
        headers.append("x-api-key", "other".parse().unwrap());
        assert!(exchange().reveal(&mut headers).is_empty());
        assert!(
            headers
                .values()
                .all(|value| !value.as_bytes().starts_with(b"ghp"))
        );
    }

    #[test]
    fn a_value_that_comes_back_is_a_placeholder() {
        let mut headers = HeaderMap::new();
        headers.append("x-echo", "a ghp_value,ghp_valueghp_value".parse().unwrap());
        headers.append("x-echo", "ghp_other".parse().unwrap());
        exchange().conceal(&[], &mut headers);
        let all: Vec<_> = headers
            .values()
            .map(|value| value.to_str().unwrap())
            .collect();
        assert_eq!(
            all,
            ["a 0f-placeholder,0f-placeholder0f-placeholder", "ghp_other"]
        );
    }
}
