"""Checks tools/capture on small models made here, of 22 architectures, and on stand-ins for servers.

    python3 tests/capture/check_capture.py build/moeref [--device cuda] [--only models|crash|hooks]

Needs torch and transformers; without them one line says that nothing was checked, and exits 0. With
--device cuda the models run there."""
import argparse
import importlib.util
import os
import sys
import tempfile

sys.dont_write_bytecode = True
PARTS = ("models", "crash", "hooks")


def main():
    p = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    p.add_argument("moeref")
    p.add_argument("--device", default="cpu")
    p.add_argument("--only", choices=PARTS)
    args = p.parse_args()
    absent = [m for m in ("torch", "transformers") if importlib.util.find_spec(m) is None]
    if absent:
        print(f"SKIPPED: tools/capture was NOT checked: {sys.executable} has no {absent[0]}")
        return 0
    import support
    import torch
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    checks = support.Checks(os.path.abspath(args.moeref))
    for part in PARTS:
        if args.only in (None, part):
            with tempfile.TemporaryDirectory() as folder:
                importlib.import_module("check_" + part).check(checks, args.device, folder)
    print(f"capture: {checks.done} checks, {checks.failed} failed (transformers "
          f"{transformers.__version__}, torch {torch.__version__}, {args.device})")
    return 1 if checks.failed or not checks.done else 0


if __name__ == "__main__":
    sys.exit(main())
