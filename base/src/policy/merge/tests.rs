use agent_sandbox_wire::order::{Queries, Scope};

use super::*;
use crate::config::load::parse;
use crate::config::source::Source;
use crate::policy::{Requirement, ShmSize, SlurmMode};

fn layer(layer: Layer, text: &str) -> RawLayer {
    parse(layer, "test.toml", text).unwrap().raw
}

#[test]
fn prefer_takes_the_later_value_and_lists_grow() {
    let policy = merge(
        &[
            layer(
                Layer::BuiltIn,
                "[home]\nmode = \"read\"\n[files]\nhide = [\"~/.ssh\"]\n",
            ),
            layer(
                Layer::User,
                "[home]\nmode = \"write\"\n[files]\nhide = [\"~/x\"]\n",
            ),
        ],
        &Additions::default(),
    )
    .unwrap();
    assert_eq!(policy.home.mode.value, HomeMode::Write);
    assert_eq!(policy.home.mode.source.line, Some(2));
    assert_eq!(policy.files.hide.len(), 2);
}

#[test]
fn slurm_is_narrowed_too_and_no_limit_is_the_widest() {
    let wide = "[slurm]\nmode = \"auto\"\nscope = \"user\"\nqueries = \"names\"\n\
                directories = [\"/a\", \"/b\"]\n[slurm.limits]\njobs = 0\n[slurm.bounds]\ngpus = 2\nmemory = \"unlimited\"\n";
    let narrow = "[slurm]\nmode = \"off\"\nscope = \"session\"\nqueries = \"counts\"\n\
                  directories = [\"/b\", \"/c\"]\n[slurm.limits]\njobs = 5\n[slurm.bounds]\ngpus = 0\nmemory = \"4G\"\n";
    let both = |open: &str, enforced: &str| {
        let layers = [
            layer(Layer::User, open),
            layer(Layer::SiteEnforced, enforced),
        ];
        merge(&layers, &Additions::default()).unwrap().slurm
    };
    for slurm in [both(wide, narrow), both(narrow, wide)] {
        assert_eq!(slurm.mode.value, SlurmMode::Off);
        assert_eq!(slurm.scope.value, Scope::Session);
        assert_eq!(slurm.queries.value, Queries::Counts);
        assert_eq!(slurm.limits.values().jobs.most, 5);
        assert_eq!(slurm.bounds.gpus.value, 2);
        assert_eq!(slurm.bounds.memory.value.bytes(), Some(4 << 30));
    }
    let open = merge(&[layer(Layer::User, wide)], &Additions::default()).unwrap();
    assert_eq!(open.slurm.limits.values().jobs.most, 0);
    assert_eq!(open.slurm.limits.jobs.source.line, Some(7));
}

#[test]
fn shared_memory_is_a_number_or_half_of_the_jobs_memory() {
    let text = |size: &str| format!("[jail]\nshm_size = \"{size}\"\n");
    let size = |open: &str, enforced: &str| {
        let layers = [
            layer(Layer::BuiltIn, &text("auto")),
            layer(Layer::User, &text(open)),
            layer(Layer::SiteEnforced, &text(enforced)),
        ];
        merge(&layers, &Additions::default()).unwrap().jail.shm_size
    };
    for (open, enforced, of_1g, of_9g) in [
        ("auto", "auto", 1 << 30, 9 << 30),
        ("2G", "auto", 1 << 30, 2 << 30),
        ("auto", "2G", 1 << 30, 2 << 30),
        ("3G", "2G", 2 << 30, 2 << 30),
        ("2G", "3G", 2 << 30, 2 << 30),
    ] {
        let size = size(open, enforced).value;
        assert_eq!(size.bytes(1 << 30), of_1g, "{open} {enforced}");
        assert_eq!(size.bytes(9 << 30), of_9g, "{open} {enforced}");
    }
    assert_eq!(size("2G", "3G").source.layer, Layer::User);
    assert_eq!(size("auto", "3G").source.layer, Layer::SiteEnforced);
    let layers = [
        layer(Layer::BuiltIn, &text("auto")),
        layer(Layer::User, &text("9G")),
    ];
    let open = merge(&layers, &Additions::default()).unwrap();
    assert_eq!(open.jail.shm_size.value, ShmSize::Bytes(9 << 30));
    let wrong = layer(Layer::User, &text("half"));
    let error = merge(&[wrong], &Additions::default()).unwrap_err();
    assert!(error.hint().unwrap().contains("or \"auto\""), "{error}");
}

#[test]
fn what_can_be_no_pattern() {
    let written = "[home]\nprotect = [\"~/bin\", \"~/own/ke*\"]\n";
    let error = merge(&[layer(Layer::User, written)], &Additions::default()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("`~/own/ke*` holds a `*`") && said.contains(":2"),
        "{said}"
    );
}

#[test]
fn what_slurm_cannot_be_set_to() {
    for (text, expected) in [
        ("[slurm]\nmode = \"on\"\n", "unknown value `on`"),
        ("[slurm]\nscope = \"all\"\n", "unknown value `all`"),
        ("[slurm]\nqueries = \"count\"\n", "did you mean \"counts\"?"),
        ("[slurm]\ndirectories = [\"/opt/*\"]\n", "holds a `*`"),
        ("[slurm]\ndirectories = [\"bin\"]\n", "is relative"),
        ("[slurm.limits]\njobs = -1\n", "out of range"),
        ("[slurm.bounds]\nminutes = 4294967296\n", "out of range"),
        ("[slurm.bounds]\npartitions = [\"a,b\"]\n", "is no name"),
        ("[slurm.bounds]\noptions = [\"--nice\"]\n", "is no name"),
        ("[slurm.bounds]\nmemory = \"0\"\n", "is not a size"),
    ] {
        let error = merge(&[layer(Layer::User, text)], &Additions::default()).unwrap_err();
        let said = format!("{error} {}", error.hint().unwrap_or_default());
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn what_landlock_cannot_give_is_missing_as_far_as_every_layer_permits() {
    let layers = |enforced: &str| {
        let open = "[landlock]\nsizes = \"degraded\"\n";
        let layers = [
            layer(Layer::User, open),
            layer(Layer::SiteEnforced, enforced),
        ];
        merge(&layers, &Additions::default()).unwrap().landlock
    };
    let free = layers("");
    assert_eq!(free.sizes.value, Requirement::Degraded);
    assert_eq!(free.sizes.source.line, Some(2));
    assert_eq!(free.users.value, Requirement::Auto);
    let narrow = "[landlock]\nsizes = \"refuse\"\nusers = \"degraded\"\n";
    let clamped = layers(narrow);
    assert_eq!(clamped.sizes.value, Requirement::Refuse);
    assert_eq!(clamped.sizes.source.layer, Layer::SiteEnforced);
}

#[test]
fn an_enforced_layer_only_narrows() {
    let policy = merge(
        &[
            layer(
                Layer::SiteEnforced,
                "[home]\nmode = \"read\"\n[jail]\nmax_processes = 100\nnested = true\n\
                 [files]\nread = [\"/usr\"]\nhide = [\"~/.ssh\"]\n",
            ),
            layer(
                Layer::User,
                "[home]\nmode = \"write\"\n[jail]\nmax_processes = 0\nnested = false\n\
                 [files]\nread = [\"/usr\", \"/opt\"]\n",
            ),
        ],
        &Additions {
            home: Some(Sourced::new(HomeMode::Write, Source::option("--home"))),
            ..Additions::default()
        },
    )
    .unwrap();
    assert_eq!(policy.home.mode.value, HomeMode::Read);
    assert_eq!(policy.jail.max_processes.value, 100);
    assert!(!policy.jail.nested.value);
    // What lies within a list that gives is judged by place, in the plan.
    assert_eq!(policy.files.read.len(), 2);
    let bounds: Vec<_> = policy
        .bounds
        .layers
        .iter()
        .map(|it| it.files.read.shown())
        .collect();
    assert_eq!(bounds[0].as_ref().unwrap().value, "`/usr`");
    assert_eq!(policy.files.hide.len(), 1);
}

/// Whose an agent's state is decides a later layer than the profile's, and an enforced one over all.
#[test]
fn state_becomes_entries_of_lists_by_the_value_that_holds() {
    let profile = "[profile]\n[profile.state]\ndirectories = [\"~/.tool\"]\nlogin = [\"~/.tool/auth\"]\n\
                   settings = [\"~/.tool/settings\"]\n";
    let shared = "agents.state = \"shared\"";
    let home = |user: &str, enforced: &str| {
        let layers = [
            layer(Layer::Profile, profile),
            layer(Layer::User, user),
            layer(Layer::SiteEnforced, enforced),
        ];
        let policy = merge(&layers, &Additions::default()).unwrap();
        let shown = |paths: &[Sourced<PathSpec>]| -> Vec<String> {
            paths.iter().map(|path| path.value.to_string()).collect()
        };
        assert_eq!(shown(&policy.home.read), ["~/.tool/settings"]);
        assert_eq!(shown(&policy.home.protect), ["~/.tool/settings"]);
        assert!(shown(&policy.files.unhide).contains(&"~/.tool/auth".to_owned()));
        assert!(
            policy
                .home
                .write
                .iter()
                .all(|path| path.source.layer == Layer::Profile)
        );
        (shown(&policy.home.keep), shown(&policy.home.write))
    };
    let (own, all): (&[&str], &[&str]) = (&["~/.tool/auth"], &["~/.tool/auth", "~/.tool"]);
    for (user, enforced, keep, write) in [
        ("", "", &["~/.tool"][..], own),
        (shared, "", &[], all),
        (shared, "agents.state = \"project\"", &["~/.tool"], own),
        ("", shared, &["~/.tool"], own),
    ] {
        let (kept, written) = home(user, enforced);
        assert_eq!(kept, keep, "{user} {enforced}");
        assert_eq!(written, write, "{user} {enforced}");
    }
}

/// What is kept need not exist, so that a pattern would match nothing; a bound may be one.
#[test]
fn a_kept_place_is_no_pattern() {
    let keep = "home.keep = [\"~/.c*\"]";
    let merged = |which| merge(&[layer(which, keep)], &Additions::default());
    let error = merged(Layer::User).expect_err("is accepted").to_string();
    assert!(error.contains("`~/.c*` holds a `*`"), "{error}");
    assert!(merged(Layer::SiteEnforced).is_ok());
    for wrong in ["/var/cache", "~", "~/a/../b"] {
        let text = format!("home.keep = [{wrong:?}]");
        let layers = [layer(Layer::User, &text)];
        assert!(merge(&layers, &Additions::default()).is_err(), "{wrong}");
    }
}
