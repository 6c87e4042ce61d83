# Recipe for Spack 1.0 and newer, for a repository of the site's own: packages/agent_sandbox/package.py. packaging/source fills in what
# stands between @, and a release has the result beside it, as agent-sandbox-VERSION-spack.py.

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class AgentSandbox(MakefilePackage):
    """Run AI coding agents on HPC login nodes without handing them your keys."""

    homepage = "https://github.com/agent-sandbox/agent-sandbox"
    # With all crates: nothing more is fetched.
    url = "https://github.com/agent-sandbox/agent-sandbox/releases/download/v@VERSION@/agent-sandbox-@VERSION@-vendored.tar.gz"

    license("MIT")

    version("@VERSION@", sha256="@SHA256@")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("rust@1.88:", type="build")

    # Not bubblewrap: its jails are made only by a bwrap that belongs to root, in /usr/bin or /usr/local/bin.

    conflicts("platform=darwin", msg="namespaces and Landlock are Linux's")

    # `make test` makes users and installs packages.
    build_time_test_callbacks = []

    # The site's policy is outside of the prefix, since it must belong to root.
    build_targets = ["build", "SITE_DIR=/etc/agent-sandbox"]

    @property
    def install_targets(self):
        return ["install", "PREFIX={0}".format(self.prefix), "SITE_DIR=/etc/agent-sandbox"]

    sanity_check_is_file = ["bin/agent-sandbox", "libexec/agent-sandbox/agent-sandbox-chaperon"]

    def test_version(self):
        """the program starts, and is of this version"""
        said = Executable(self.prefix.bin.join("agent-sandbox"))("--version", output=str)
        assert str(self.spec.version) in said
