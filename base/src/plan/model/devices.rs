//! Which rule of a list of device nodes names one, and whether it counts.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::config::source::{Layer, Sourced};
use crate::policy::paths::glob;
use crate::policy::{NetworkMode, PathSpec};

/// Adapters of networks that programs drive themselves: InfiniBand and RoCE, Omni-Path and its forerunner, Aries, Slingshot,
/// what registers memory for them, and NVLink between nodes (IMEX channels). RDMA knows no network namespace unless root has asked for it (`rdma system set netns
/// exclusive`, rdma-system(8)): who opens such a node reaches the fabric whatever the jail's network is.
const ADAPTERS: [&str; 8] = [
    "/dev/infiniband/*",
    "/dev/hfi1*",
    "/dev/ipath*",
    "/dev/kgni*",
    "/dev/cxi*",
    "/dev/kdreg*",
    "/dev/rv",
    "/dev/nvidia-caps-imex-channels/*",
];

/// Whether a rule of `devices.allow` gives this node in a jail with that network: what is built in gives adapters of networks only
/// where all of the host's network is open. Who names one in a policy of their own has it.
#[must_use]
pub fn gives(rule: &Sourced<PathSpec>, node: &Path, network: NetworkMode) -> bool {
    let node = node.as_os_str().as_bytes();
    rule.source.layer != Layer::BuiltIn
        || network == NetworkMode::Open
        || !ADAPTERS
            .iter()
            .any(|adapter| glob(adapter.as_bytes(), node))
}

/// The rule of a list that names one of these paths.
pub fn rule<'a>(list: &'a [Sourced<PathSpec>], paths: &[&Path]) -> Option<&'a Sourced<PathSpec>> {
    list.iter().find(|rule| {
        let pattern = rule.value.to_string();
        let names = |path: &&Path| glob(pattern.as_bytes(), path.as_os_str().as_bytes());
        paths.iter().any(names)
    })
}
