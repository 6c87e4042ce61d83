//! Credentials in a plan: which of them count, what stands inside in place of each, and how programs inside come to trust the filter
//! that exchanges them. No value is known here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_hosts::{Host, HostRules};
use bstr::ByteSlice;

use super::env::{self, Environment};
use crate::config::source::Source;
use crate::host::HostFacts;
use crate::host::files::{Files, Found, Kind, Look};
use crate::plan::model::network::{FilteredNetwork, PlannedCredential};
use crate::plan::model::{HiddenVariable, Invocation, Job, Omitted, PlanError, Variable, Why};
use crate::policy::{Credential, Exchange, NetworkMode, Policy, ValueSource};

/// What a placeholder ends in. Some agents ask whether a key may be used, and know it again by its last twenty letters: these are the
/// same in every session.
const MARK: &str = "-agent-sandbox-placeholder";
/// A value of fewer bytes stands in other values by chance.
const SHORTEST: usize = 8;
/// The largest file of certificates that is read, in bytes. Distributions have 250 KiB.
const LARGEST_BUNDLE: usize = 2 << 20;
/// Where distributions have the certificates that programs trust: Debian, Alpine and Arch; Fedora and RHEL; SUSE; where OpenSSL is
/// built as its authors do it.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Where distributions have those that Java trusts: Debian, Alpine and Arch; Fedora and RHEL; SUSE.
const JAVA_STORES: [&str; 3] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/var/lib/ca-certificates/java-cacerts",
];
/// Where a Java is that is not the distribution's, and where it has them, before and since Java 9.
const JAVA_HOME: &str = "JAVA_HOME";
const JAVA_OWN: [&str; 2] = ["jre/lib/security/cacerts", "lib/security/cacerts"];
/// Whom OpenSSL, Go and most others trust, if it is set: it comes first.
const SSL_CERT_FILE: &str = "SSL_CERT_FILE";
/// Variables that name such a file to programs which do not read the system's.
const TRUSTING: [&str; 11] = [
    SSL_CERT_FILE,
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CODEX_CA_CERTIFICATE",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
];

/// The credentials that count, and what is said of others.
pub(super) struct Wanted<'a> {
    pub(super) credentials: Vec<&'a Credential>,
    pub(super) omitted: Vec<Omitted>,
    /// Of a job: those whose values are known where the session was started alone, and why.
    kept: Vec<(&'a Credential, String)>,
}

/// Which credentials count. Those of profiles and of the site count in a filtered network alone, and where their variable is set. In a job
/// those count that its session exchanges, where the job's network is filtered.
///
/// # Errors
/// One of the user's is to be exchanged, and nothing filters.
pub(super) fn wanted<'a>(
    policy: &'a Policy,
    host: &HostFacts,
    mode: NetworkMode,
    job: Option<&Job>,
) -> Result<Wanted<'a>, PlanError> {
    let mut wanted = Wanted {
        credentials: Vec::new(),
        omitted: Vec::new(),
        kept: Vec::new(),
    };
    let off = policy.network.credentials.value == Exchange::Off;
    for one in &policy.credentials {
        let quietly = one.is_offered() || job.is_some();
        if off || mode == NetworkMode::Isolated || quietly && mode != NetworkMode::Filtered {
            continue;
        }
        if let Some(job) = job {
            match &one.from {
                _ if job.placeholder(&one.name).is_none() => {}
                ValueSource::Variable(name) => wanted.kept.push((one, not_in_jobs(name))),
                ValueSource::File(_) | ValueSource::Command(_) => wanted.credentials.push(one),
            }
            continue;
        }
        if mode != NetworkMode::Filtered {
            let message = format!(
                "the credential `{}` ({}) needs network.mode = \"filtered\"",
                one.name, one.source
            );
            return Err(PlanError::new(message).hint(format!(
                "the filter exchanges it, and with the host's network ({}) there is none; --set network.credentials=off does without",
                policy.network.mode.source
            )));
        }
        if let (true, ValueSource::Variable(name)) = (one.is_offered(), &one.from)
            && host.variable(name).is_none_or(OsStr::is_empty)
        {
            continue;
        }
        // It leads to a service of the user's own, which has to get the value itself.
        if let Some(elsewhere) = one.unless.iter().find(|name| host.variable(name).is_some()) {
            let reason = format!(
                "${elsewhere} is set, so that ${} is as the rules of [env] have it",
                one.env
            );
            wanted.omitted.push(omitted(one, reason));
            continue;
        }
        wanted.credentials.push(one);
    }
    Ok(wanted)
}

/// Why one of a job stays a placeholder whose value is a variable's.
fn not_in_jobs(variable: &str) -> String {
    format!(
        "\"env:{variable}\" is read where the session is started and does not reach jobs; use \"file:PATH\" or \"command:LINE\", which are \
         read on the job's node"
    )
}

fn why(name: &str, source: &Source) -> Why {
    Why::Rule {
        key: format!("credential `{name}`"),
        source: source.clone(),
    }
}

fn omitted(one: &Credential, reason: String) -> Omitted {
    Omitted {
        path: format!("credential `{}`", one.name),
        reason,
        why: why(&one.name, &one.source),
        loud: true,
    }
}

/// What is told to the filter, and what is left out because the rules do not lead there.
pub(super) fn planned(
    wanted: &Wanted<'_>,
    rules: &HostRules,
    invocation: &Invocation,
) -> (Vec<PlannedCredential>, Vec<Omitted>) {
    let mut left_out = wanted.omitted.clone();
    let planned = wanted.credentials.iter().map(|one| {
        let mut hosts = one.hosts.clone();
        hosts.retain(
            |(name, port)| match rules.judge(&Host::Name(name.clone()), *port) {
                Ok(_) => true,
                Err(refusal) => {
                    left_out.push(omitted(one, refusal.to_string()));
                    false
                }
            },
        );
        PlannedCredential {
            hosts,
            ..of(one, invocation)
        }
    });
    (planned.collect(), left_out)
}

/// Those of a job that stay placeholders, and why.
pub(super) fn kept(
    wanted: &Wanted<'_>,
    invocation: &Invocation,
) -> Vec<(PlannedCredential, String)> {
    let all = wanted.kept.iter();
    all.map(|(one, reason)| (of(one, invocation), reason.clone()))
        .collect()
}

fn of(one: &Credential, invocation: &Invocation) -> PlannedCredential {
    PlannedCredential {
        name: one.name.clone(),
        hosts: one.hosts.clone(),
        env: one.env.clone(),
        placeholder: placeholder(one, invocation),
        from: one.from.clone(),
        by_base_url: !one.base_url.is_empty(),
        source: one.source.clone(),
    }
}

/// What stands inside in place of a credential: in jobs what the session has.
fn placeholder(one: &Credential, invocation: &Invocation) -> String {
    let known = invocation.job.as_ref();
    match known.and_then(|job| job.placeholder(&one.name)) {
        Some(known) => known.to_owned(),
        None => format!("{}{}-{}{MARK}", one.prefix, invocation.random, one.name),
    }
}

/// Puts placeholders in place of values, and names the files of certificates to programs.
pub(super) fn set(
    environment: &mut Environment,
    wanted: &Wanted<'_>,
    filter: &FilteredNetwork,
    host: &HostFacts,
) {
    let Environment {
        variables, hidden, ..
    } = environment;
    for one in &filter.credentials {
        let ValueSource::Variable(name) = &one.from else {
            continue;
        };
        let value = host.variable(name).map(OsStr::as_bytes).unwrap_or_default();
        let why = why(&one.name, &one.source);
        variables.retain(|variable| {
            let repeats = value.len() >= SHORTEST && variable.value.as_bytes().contains_str(value);
            let is_it = variable.name == name.as_str() || repeats;
            if is_it {
                let (name, why) = (variable.name.clone(), why.clone());
                hidden.push(HiddenVariable { name, why });
            }
            !is_it
        });
    }
    for (one, stated) in filter.credentials.iter().zip(&wanted.credentials) {
        let why = why(&one.name, &one.source);
        put(environment, &one.env, one.placeholder.as_str(), why.clone());
        for (name, path) in &stated.base_url {
            if let Some(url) = stated.base_url(path) {
                put(environment, name, url, why.clone());
            }
        }
    }
    name_certificates(environment, filter);
}

/// The same of a task of a job: it has the placeholders that it brings, also where a rule hides their variables, for that means values.
pub(super) fn set_in_job(environment: &mut Environment, filter: &FilteredNetwork, job: &Job) {
    let kept = filter.kept.iter().map(|(one, _)| one);
    for one in filter.credentials.iter().chain(kept) {
        if job.brings(&one.env, &one.placeholder) {
            let why = why(&one.name, &one.source);
            put(environment, &one.env, one.placeholder.as_str(), why);
        }
    }
    name_certificates(environment, filter);
}

fn put(environment: &mut Environment, name: &str, value: impl Into<OsString>, why: Why) {
    environment
        .variables
        .retain(|variable| variable.name != name);
    environment.hidden.retain(|variable| variable.name != name);
    environment.variables.push(Variable {
        name: name.into(),
        value: value.into(),
        why,
    });
}

/// Names the usual file of certificates in the variables that name another one nowhere.
fn name_certificates(environment: &mut Environment, filter: &FilteredNetwork) {
    let trust = filter.trust.as_ref();
    if let Some(bundle) = trust.and_then(|trust| trust.bundles.first()) {
        let why = Why::Every("the certificates that programs here trust, with that of the filter");
        for name in TRUSTING {
            let mut named = environment.variables.iter();
            if !named.any(|variable| variable.name == name) {
                put(environment, name, bundle, why.clone());
            }
        }
    }
    environment
        .variables
        .sort_unstable_by(|a, b| a.name.cmp(&b.name));
    environment
        .hidden
        .sort_unstable_by(|a, b| a.name.cmp(&b.name));
}

/// Variables that say which certificates are trusted, as the launch had them: a job's node needs them.
pub fn trusting_variables(policy: &Policy) -> Vec<&'static str> {
    match policy.credentials.as_slice() {
        [] => Vec::new(),
        _ => TRUSTING.into_iter().chain([JAVA_HOME]).collect(),
    }
}

/// A file of certificates.
pub(super) struct Bundle {
    pub(super) found: Found,
    pub(super) content: Vec<u8>,
    /// Whether those count by which this host knows servers.
    pub(super) first: bool,
}

/// The files of certificates that programs inside read: the system's, and those that variables name which pass.
pub(super) fn bundles(policy: &Policy, host: &HostFacts, files: &dyn Files) -> Vec<Bundle> {
    let named = TRUSTING.into_iter().filter_map(|name| {
        let value = host.path_variable(name)?;
        let passes = matches!(
            env::verdict(policy, name.as_ref(), Some(value)),
            env::Verdict::Passes(_)
        );
        (passes && Path::new(value).is_absolute()).then(|| (name, PathBuf::from(value)))
    });
    let usual = BUNDLES.map(|path| ("", PathBuf::from(path)));
    let mut all: Vec<Bundle> = Vec::new();
    for (name, path) in named.chain(usual) {
        if let Some(found) = found(&path, &all, files) {
            let counts = matches!(name, "" | SSL_CERT_FILE) && !all.iter().any(|one| one.first);
            all.push(Bundle {
                first: counts,
                ..found
            });
        }
    }
    all
}

/// The same for Java.
pub(super) fn java_stores(host: &HostFacts, files: &dyn Files) -> Vec<Bundle> {
    let home = host.path_variable(JAVA_HOME).map(Path::new);
    let own = home.filter(|home| home.is_absolute());
    let own = own.iter().flat_map(|home| JAVA_OWN.map(|at| home.join(at)));
    let mut all = Vec::new();
    for path in JAVA_STORES.map(PathBuf::from).into_iter().chain(own) {
        all.extend(found(&path, &all, files));
    }
    all
}

/// A file that is none of those that there are.
fn found(path: &Path, all: &[Bundle], files: &dyn Files) -> Option<Bundle> {
    let Look::Found(found) = files.look(path) else {
        return None;
    };
    if found.kind != Kind::File || all.iter().any(|one| one.found.real == found.real) {
        return None;
    }
    let content = files.small_file(&found.real, LARGEST_BUNDLE)?;
    Some(Bundle {
        found,
        content,
        first: false,
    })
}
