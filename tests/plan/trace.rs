//! What is asked of the node's tracer.

use std::path::Path;

use agent_sandbox::plan::model::trace::{RawPath, TraceRequest};
use agent_sandbox::plan::{Mount, Plan};
use agent_sandbox_events::protocol::{Enforce, EventKind};

use crate::host;
use crate::scenario::Scenario;
use crate::tree::Tree;

const STATE: &str = "/home/ada/.local/state/agent-sandbox";

fn wish(plan: &Plan) -> &TraceRequest {
    plan.trace.request.as_ref().unwrap()
}

fn forbidden(plan: &Plan) -> Vec<&str> {
    let paths = wish(plan).forbidden.iter().map(RawPath::path);
    paths.map(|path| path.to_str().unwrap()).collect()
}

fn layered(tree: Tree, more: &str) -> Plan {
    let policy = format!("[trace]\nenforce = true\n{more}");
    Scenario::new(tree).policy(&policy).plan().unwrap()
}

#[test]
fn the_policy_is_asked_for_and_no_more() {
    let plan = Scenario::new(host::plain()).plan().unwrap();
    let built_in = wish(&plan);
    assert!(!built_in.required && built_in.enforce == Enforce::Off);
    assert!(built_in.forbidden.is_empty() && built_in.shown.is_empty());
    assert!(!plan.trace.records(), "no tracer stands by");
    assert!(!built_in.events.contains(&EventKind::Fork));
    assert_eq!((built_in.events.len(), built_in.every), (6, 1));
    assert_eq!(
        (&built_in.step, built_in.session.as_str()),
        (&None, "s0000000")
    );
    let off = Scenario::new(host::plain()).policy("[trace]\nmode = \"off\"\n");
    assert!(off.plan().unwrap().trace.request.is_none());
    let demanded = Scenario::new(host::plain())
        .policy("[trace]\nmode = \"off\"\nevents = [\"exec\"]\nevery = 100\nredact = [\"--a=*\"]\n")
        .enforced("[trace]\nmode = \"required\"\nevents = [\"open\"]\nevery = 10\nredact = [\"--b=*\"]\nmissing = true\n")
        .facts(|host| host.traced = true)
        .plan()
        .unwrap();
    let wish = wish(&demanded);
    assert!(wish.required && wish.missing && demanded.trace.records());
    assert_eq!(wish.events, [EventKind::Exec, EventKind::Open]);
    assert_eq!(
        (wish.every, &wish.redact[..]),
        (10, &["--a=*".to_owned(), "--b=*".to_owned()][..])
    );
    assert_eq!(wish.rule, "trace.mode `required` (enforced.toml:2)");
}

#[test]
fn what_is_hidden_is_forbidden_but_for_what_is_shown_in_it() {
    let tree = host::plain()
        .file("/home/ada/.cache/x", "")
        .file(&format!("{STATE}/audit/today"), "")
        .file(&format!("{STATE}/kept/home+ada+other/.cache/x"), "")
        .file(&format!("{STATE}/kept/home+ada+project/.cache/x"), "")
        .file(&format!("{STATE}/kept/home+ada+project/.old/x"), "");
    let plan = layered(tree, "");
    let all = forbidden(&plan);
    let kept = plan.steps.iter().find_map(|step| match &step.mount {
        Mount::Kept { from, .. } => Some(from.to_str().unwrap()),
        _ => None,
    });
    let kept = kept.expect("something is kept");
    assert!(kept.starts_with(STATE), "{kept}");
    for path in [
        "/home/ada/.ssh",
        &format!("{STATE}/audit"),
        &format!("{STATE}/kept/home+ada+other"),
    ] {
        assert!(all.contains(&path), "{path}: {all:?}");
    }
    for path in &all {
        assert!(!Path::new(kept).starts_with(path), "{path}");
        // Each once, and nothing below another.
        assert!(
            all.iter()
                .all(|other| other == path || !Path::new(path).starts_with(other)),
            "{path}"
        );
    }
    assert!(plan.trace.spared.is_empty(), "{:?}", plan.trace.spared);
    let wish = wish(&plan);
    assert!(wish.no_user_namespace && !wish.no_internet);
    assert!(
        wish.shown
            .iter()
            .any(|path| path.path() == Path::new("/home/ada/project"))
    );
}

/// What travels to the tasks of a job comes out as it went in.
#[test]
fn what_is_asked_travels() {
    let plan = layered(
        host::plain(),
        "audit = true\n[network]\nmode = \"isolated\"\n[jail]\nnested = true\n",
    );
    let wish = wish(&plan);
    assert!(wish.no_internet && !wish.no_user_namespace && wish.enforce == Enforce::On);
    let text = postcard::to_allocvec(wish).unwrap();
    assert_eq!(&postcard::from_bytes::<TraceRequest>(&text).unwrap(), wish);
}
