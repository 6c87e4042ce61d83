#!/usr/bin/env python3
"""A stand-in for the part of Spack's language that packaging/spack/package.py uses, and for EasyBuild's. It is neither: it reads a
recipe, refuses names that it does not know, and carries out `build` and `install` of Spack's with the real make.

    tests/install/spack.py spack RECIPE PREFIX
    tests/install/spack.py easybuild RECIPE
"""

import pathlib
import re
import subprocess
import sys
import types

VERSION, SUM = "1.2.3", "0" * 64


def filled(path):
    """The recipe as packaging/source fills it in."""
    text = pathlib.Path(path).read_text()
    text = text.replace("@VERSION@", VERSION).replace("@SHA256@", SUM)
    assert not re.search("@[A-Z0-9_]+@", text), "something is left to fill in"
    return text


def spack(path, prefix):
    said = {"depends_on": [], "conflicts": [], "license": [], "version": []}
    language = types.ModuleType("spack.package")
    for name in said:
        setattr(language, name, lambda *words, name=name, **more: said[name].append((words, more)))

    class MakefilePackage:
        build_targets, install_targets = [], ["install"]
        build_time_test_callbacks = ["check"]

        def __init__(self):
            self.prefix = prefix

    system = types.ModuleType("spack_repo.builtin.build_systems.makefile")
    system.MakefilePackage = MakefilePackage
    for module in ["spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]:
        sys.modules[module] = types.ModuleType(module)
    sys.modules.update({language.__name__: language, system.__name__: system})
    space = {}
    exec(compile(filled(path), path, "exec"), space)
    package = space["AgentSandbox"]()
    assert said["version"] == [((VERSION,), {"sha256": SUM})], said
    assert package.url.count(VERSION) == 2 and package.__doc__ and package.homepage, "what a recipe must say"
    assert package.build_time_test_callbacks == [], "Spack would run `make test`"
    for targets in [package.build_targets, package.install_targets]:
        subprocess.run(["make", "--no-print-directory", *targets], check=True)
    for file in package.sanity_check_is_file:
        assert (pathlib.Path(prefix) / file).is_file(), file
    print("depends on:", ", ".join(words[0] for words, _ in said["depends_on"]))


def easybuild(path):
    space = {"SYSTEM": object()}
    exec(compile(filled(path), path, "exec"), space)
    for name in ["easyblock", "name", "version", "homepage", "description", "toolchain", "sources", "checksums", "moduleclass"]:
        assert space.get(name), name
    assert space["version"] == VERSION and space["checksums"] == [SUM] and len(space["sources"]) == 1
    print("needs:", *space["sanity_check_paths"]["files"])


{"spack": spack, "easybuild": easybuild}[sys.argv[1]](*sys.argv[2:])
