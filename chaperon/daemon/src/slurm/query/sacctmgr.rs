//! `sacctmgr(1)`: shows, of what concerns the user; changes nothing.

use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::{Reason, Refusal};
use crate::slurm::answers::{about, fields, plain};
use crate::slurm::ask::{Stop, settle};
use crate::slurm::parse;
use crate::slurm::request::Context;

/// How much of an entity may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// It is the cluster's.
    Cluster,
    /// It is the user's; the key that says whose.
    User(&'static str),
    /// Shown where names may be shown.
    Names,
}

/// The entities, the fewest letters that mean each (`sacctmgr.c`), and their names.
const ENTITIES: [(&str, usize, About); 12] = [
    ("accounts", 2, About::Names),
    ("associations", 2, About::User("user")),
    ("clusters", 2, About::Cluster),
    ("configuration", 2, About::Cluster),
    ("coordinators", 4, About::Names),
    ("events", 1, About::Cluster),
    ("federations", 1, About::Cluster),
    ("qos", 1, About::Cluster),
    ("resources", 4, About::Cluster),
    ("tres", 2, About::Cluster),
    ("users", 1, About::User("name")),
    ("wckeys", 1, About::User("user")),
];

/// Words that stand alone behind an entity.
const WORDS: [&str; 15] = [
    "where",
    "withassoc",
    "withcoordinator",
    "withdeleted",
    "withfed",
    "withraw",
    "withrawqoslevel",
    "withsubaccounts",
    "wopinfo",
    "woplimits",
    "tree",
    "onlydefaults",
    "withclusters",
    "withusage",
    "all_time",
];

/// Keys that pick, with a list of names.
const KEYS: [&str; 20] = [
    "account",
    "accounts",
    "adminlevel",
    "cluster",
    "clusters",
    "defaultaccount",
    "defaultwckey",
    "descriptions",
    "end",
    "event",
    "id",
    "name",
    "names",
    "nodes",
    "organization",
    "parent",
    "partitions",
    "qos",
    "start",
    "state",
];

/// Keys that pick by user.
const USERS: [&str; 4] = ["user", "users", "name", "names"];

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let order = &context.session.order;
    let words = read(
        &parsed.operands,
        &order.user,
        order.queries == Queries::Names,
    )?;
    let mut arguments = parse::canonical(&parsed.given);
    // Whatever the words say, nothing is changed, and nothing is asked.
    arguments.push("--readonly".into());
    arguments.push("--immediate".into());
    arguments.extend(words);
    plain(context, arguments, parsed.kept).await
}

fn means(word: &str, name: &str, least: usize) -> bool {
    word.len() >= least
        && name
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// The words behind the options, written anew.
fn read(operands: &[OsString], user: &str, others: bool) -> Result<Vec<OsString>, Refusal> {
    let mut words = Vec::new();
    for word in operands {
        let word = word.to_str();
        words.push(word.ok_or_else(|| Refusal::mistake("an argument is not UTF-8 text"))?);
    }
    let (verb, entity, rest) = match words[..] {
        [] => {
            return Err(Refusal::mistake("give a command; there is no prompt here")
                .hint("for instance: sacctmgr show qos"));
        }
        [verb, entity, ref rest @ ..] => (verb, entity, rest),
        [verb] => (verb, "", &[][..]),
    };
    if !means(verb, "show", 1) && !means(verb, "list", 1) {
        return Err(Refusal::rule(
            format!(
                "sacctmgr {} is refused: only show is allowed here",
                verb.escape_debug()
            ),
            "accounts are changed outside the jail, by the user or an administrator",
        ));
    }
    let known = ENTITIES
        .iter()
        .find(|(name, least, _)| means(entity, name, *least));
    let Some(&(name, _, about)) = known else {
        return Err(Refusal::rule(
            format!(
                "sacctmgr show `{}` is refused: it is not known to be harmless",
                entity.escape_debug()
            ),
            "known are qos, tres, cluster, config, assoc, user",
        ));
    };
    if about == About::Names && !others {
        return Err(Refusal::rule(
            format!(
                "sacctmgr show {name} is refused: names of others are not shown (`slurm.queries`)"
            ),
            "sacctmgr show assoc shows your own accounts",
        )
        .because(Reason::Key("slurm.queries")));
    }
    let mut all: Vec<OsString> = vec!["show".into(), name.into()];
    let mut pinned = false;
    for word in rest {
        let word = word.trim();
        let lower = word.to_ascii_lowercase();
        let Some((key, value)) = lower.split_once('=') else {
            if WORDS.iter().any(|known| *known == lower) {
                all.push(lower.into());
                continue;
            }
            // A bare word is a name: of a user, of a QOS.
            all.push(filter(about, "", word, user, others, &mut pinned)?.into());
            continue;
        };
        let (key, _) = (key.trim_end_matches(['+', '-', '!']), value);
        let value = &word[word.find('=').map_or(0, |at| at + 1)..];
        if means(key, "format", 1) {
            let list = fields(OsStr::new(value))?;
            all.push(format!("format={}", list.join(",")).into());
            continue;
        }
        let known = KEYS.contains(&key) || USERS.contains(&key);
        if !known {
            return Err(Refusal::rule(
                format!(
                    "sacctmgr show {name} with `{}` is refused: it is not known to be harmless",
                    key.escape_debug()
                ),
                "leave it out, and choose among the lines of the answer",
            ));
        }
        all.push(filter(about, key, value, user, others, &mut pinned)?.into());
    }
    if let About::User(key) = about
        && !others
        && !pinned
    {
        all.push(format!("{key}={user}").into());
    }
    Ok(all)
}

/// `KEY=LIST`, of other users only where names may be shown.
fn filter(
    about: About,
    key: &str,
    value: &str,
    user: &str,
    others: bool,
    pinned: &mut bool,
) -> Result<String, Refusal> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"_-.,:/+".contains(&b);
    if value.is_empty() || !value.bytes().all(good) || value.starts_with('-') {
        return Err(Refusal::mistake(format!(
            "invalid value `{}`: it takes names with commas between",
            value.escape_debug()
        )));
    }
    if let About::User(own) = about
        && !others
    {
        let by_user =
            key.is_empty() || key.starts_with("user") || own == "name" && key.starts_with("name");
        if by_user {
            if value != user {
                return Err(Refusal::rule(
                    "what belongs to other users is not shown (`slurm.queries`)",
                    "leave the user out: what is your own is shown",
                )
                .because(Reason::Key("slurm.queries")));
            }
            *pinned = true;
            return Ok(format!("{own}={user}"));
        }
    }
    Ok(if key.is_empty() {
        value.to_owned()
    } else {
        format!("{key}={value}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(words: &[&str], others: bool) -> Result<String, Refusal> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let all = read(&words, "alice", others)?;
        let all: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
        Ok(all.join(" "))
    }

    #[test]
    fn what_is_shown_is_the_users() {
        let written = |words: &[&str]| written(words, false).unwrap();
        assert_eq!(written(&["show", "assoc"]), "show associations user=alice");
        assert_eq!(
            written(&["list", "user", "withassoc"]),
            "show users withassoc name=alice"
        );
        assert_eq!(written(&["sh", "user", "alice"]), "show users name=alice");
        assert_eq!(
            written(&[
                "show",
                "assoc",
                "where",
                "user=alice",
                "format=account,qos%20"
            ]),
            "show associations where user=alice format=account,qos%20"
        );
        assert_eq!(written(&["show", "qos", "normal"]), "show qos normal");
        assert_eq!(written(&["show", "tres"]), "show tres");
    }

    #[test]
    fn the_rest_is_refused() {
        for words in [
            &["add", "user", "x"][..],
            &["modify", "user", "x", "set", "x=y"],
            &["delete", "user", "x"],
            &["dump", "cluster"],
            &["load", "file"],
            &["archive", "dump"],
            &["show", "user", "bob"],
            &["show", "assoc", "user=bob"],
            &["show", "assoc", "users=alice,bob"],
            &["show", "account"],
            &["show", "stats"],
            &["show", "transaction"],
            &["show", "problems"],
            &["show", "runaway"],
            &["show", "qos", "file=x"],
            &["show", "qos", "-i"],
            &["show"],
            &[],
        ] {
            assert!(written(words, false).is_err(), "{words:?}");
        }
        assert!(written(&["show", "account"], true).is_ok());
        assert_eq!(
            written(&["show", "user", "bob"], true).unwrap(),
            "show users bob"
        );
    }
}
