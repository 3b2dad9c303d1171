"""Builds libmoeref.so by the repository's Makefile and ships it inside the package. The sources lie
two folders up: pip builds this folder where it stands, and not from a copy of it."""
import os
import re
import shutil
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build")


def give_up(reason):
    raise SystemExit(f"\nmoeref: {reason}\n")


def version():
    try:
        with open(os.path.join(ROOT, "ref", "moeref.h")) as header:
            return re.search(r'^#define MR_VERSION "(.*)"', header.read(), re.M)[1]
    except OSError:
        give_up("ref/moeref.h and the Makefile are not there: install from the folder tools/python "
                "of the whole repository (pip install tools/python)")


def make_library():
    """build/libmoeref.so; only what is not up to date is compiled."""
    if not shutil.which("make"):
        give_up("make: missing -> apt-get install make, then 'make deps' in the repository")
    compiler = os.environ.get("CC", "gcc").split()[0]
    if not shutil.which(compiler):
        give_up(f"{compiler}: missing -> no C compiler: run 'make deps' in the repository")
    # A make that called us would share its jobs, and its variables, with this one.
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    jobs = len(os.sched_getaffinity(0))
    made = subprocess.run(["make", f"-j{jobs}", "-C", ROOT, "BUILD=build", "shared"], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode:
        give_up(f"libmoeref.so was not built (make shared in {ROOT}):\n{made.stdout[-3000:]}")
    return os.path.join(BUILD, "libmoeref.so")


class BuildWithLibrary(build_py):
    def run(self):
        library = make_library()
        editable = getattr(self, "editable_mode", False)
        folder = os.path.join(self.build_lib, "moeref")
        if not editable:  # what an earlier version left there would be shipped
            shutil.rmtree(folder, ignore_errors=True)
        super().run()
        if editable:
            return  # the package then finds the library in build/
        os.makedirs(folder, exist_ok=True)
        shutil.copy(library, os.path.join(folder, "libmoeref.so"))


class PlatformWheel(bdist_wheel):
    """One wheel for all of this platform's Pythons: the library knows none of them."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


os.makedirs(os.path.join(BUILD, "python"), exist_ok=True)
setup(version=version(), cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel},
      options={"build": {"build_base": os.path.join(BUILD, "python")},
               "egg_info": {"egg_base": os.path.join(BUILD, "python")}})
