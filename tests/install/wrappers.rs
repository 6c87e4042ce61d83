//! The module of wrapper names: `claude` becomes `agent-sandbox claude`.

use crate::modules::{has_lmod, module};
use crate::world::Place;

/// Says whether it is in a jail, which PATH it has, and how often it is called by itself.
const AGENT: &str = "#!/bin/sh\n\
    echo \"jail: ${AGENT_SANDBOX:-none} $*\"\n\
    case $AGENT_SANDBOX:$PATH in 1:*wrappers*) echo 'wrappers inside' ;; esac\n\
    if [ \"$1\" = again ]; then shift; exec sh -c 'claude \"$@\"' sh \"$@\"; fi\n";

#[test]
fn a_wrapped_name_starts_in_a_jail_and_once() {
    if !has_lmod("wrapper names by modulefile") {
        return;
    }
    let place = Place::installed();
    place.program("home/.local/bin/claude", AGENT);
    let script = "cd $HOME/project; export PATH=$HOME/.local/bin:$PATH; unset MANPATH\n\
        module load agent-sandbox-wrappers || exit 1\n\
        claude again again 'a  b' 2>/dev/null; echo \"-- $?\"\n\
        $HOME/.local/bin/claude outside; echo \"-- $?\"\n\
        aider 2>/dev/null; echo \"-- $?\"\n\
        module unload agent-sandbox-wrappers; claude plain; command -v claude; command -v agent-sandbox || echo gone";
    let done = module(&place, script).ok();
    let want = format!(
        "jail: 1 again again a  b\njail: 1 again a  b\njail: 1 a  b\n-- 0\n\
         jail: none outside\n-- 0\n-- 127\n\
         jail: none plain\n{}/.local/bin/claude\ngone\n",
        place.home.display()
    );
    assert_eq!(done.out, want, "{done}");
}

#[test]
fn every_wrapper_is_installed_and_removed() {
    let place = Place::installed();
    let names = std::fs::read_to_string(crate::world::root().join("lmod/wrappers/names")).unwrap();
    let wrappers = place.prefix.join("libexec/agent-sandbox/wrappers");
    assert!(names.lines().count() > 3, "{names}");
    for name in names.lines() {
        let text = std::fs::read_to_string(wrappers.join(name)).unwrap();
        let launcher = format!("'{}/bin/agent-sandbox'", place.prefix.display());
        assert!(text.contains(&launcher), "{name}: {text}");
    }
    place.make("uninstall", &[]).ok();
    assert!(!wrappers.exists());
}
