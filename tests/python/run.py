"""Tests of tools/python: every function test_* of the files test_*.py here.

    python3 tests/python/run.py BUILD [--installed] [WORD]

BUILD holds moeref and libmoeref.so. --installed: the package is the one that pip installed, with its
own library. WORD: only tests with that in their name. Needs numpy; pytest runs the same files, from
tests/python, with PYTHONPATH=../../tools/python."""
import glob
import importlib
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def main(arguments):
    installed = "--installed" in arguments
    build, *words = [a for a in arguments if a != "--installed"]
    os.environ["MOEREF_BUILD"] = os.path.abspath(build)
    sys.path.insert(0, HERE)
    if not installed:
        os.environ["MOEREF_LIBRARY"] = os.path.join(os.path.abspath(build), "libmoeref.so")
        sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
    import support
    run, failed = 0, 0
    for path in sorted(glob.glob(os.path.join(HERE, "test_*.py"))):
        name = os.path.basename(path)[:-3]
        module, began, before = importlib.import_module(name), time.monotonic(), run
        for test in sorted(t for t in vars(module) if t.startswith("test_")):
            if words and not any(w in f"{name}.{test}" for w in words):
                continue
            run += 1
            try:
                getattr(module, test)()
            except support.Skipped as why:
                print(f"SKIPPED {name}.{test}: {why}")
            except Exception:
                failed += 1
                print(f"FAILED {name}.{test}")
                traceback.print_exc(file=sys.stdout)
        print(f"{name}: {run - before} tests, {time.monotonic() - began:.1f} s")
    print(f"python {sys.version.split()[0]}: {run} tests, {failed} failed")
    return 1 if failed or not run else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
