"""That a capture is there whole or not at all, whenever the run is killed."""
import json
import os
import signal
import subprocess
import sys
import time

import models
from capture import capture
from spool import Spool, salvage
from support import TOOLS, generate, prompt, tensors


def command(*args):
    return [sys.executable, "-B", os.path.join(TOOLS, "capture.py"), *map(str, args)]


def ask(*args):
    return subprocess.run(command(*args), capture_output=True, text=True)


def saved_model(folder):
    path = os.path.join(folder, "model")
    models.build("qwen3_moe").save_pretrained(path)
    with open(os.path.join(folder, "text"), "w") as f:
        f.write("The cut lies between the last selected and the first rejected expert. " * 200)
    return path, os.path.join(folder, "text")


def rows(case):
    return sum(t[1][0] for n, t in tensors(os.path.join(os.path.dirname(case), "capture.safetensors")
                                           ).items() if n.endswith("topk_ids"))


def check_command(checks, device, folder, model, text):
    out = os.path.join(folder, "command")
    run = ["--model", model, "--text", text, "--bytes", "--out", out, "--length", 40, "--decode", 5,
           "--layers", "0,2", "--max-rows", 50, "--device", device]
    r = ask(*run)
    case = r.stdout.strip().splitlines()[-1] if r.stdout.strip() else ""
    if checks.that(r.returncode == 0 and case.endswith("command.json"), f"command: {r.stderr}"):
        checks.good(case, "command", 2 * (50 + 50))
    r = ask(*run)
    checks.that(r.returncode == 1 and "is there already" in r.stderr and r.stderr.count("\n") == 1,
                f"command, again: {r.returncode} {r.stderr}")
    before = os.stat(case).st_ino
    r = ask(*run, "--force")
    checks.that(r.returncode == 0 and os.stat(case).st_ino != before, f"--force: {r.stderr}")
    checks.that(sorted(os.listdir(out)) == ["capture.safetensors", "command.json", "config.json",
                                            "router.safetensors"], f"{os.listdir(out)}")
    for bad, words in ((["--model", folder + "/none"], "none"), (["--text", folder + "/none"],
                       "No such file"), (["--layers", "3-1"], "expected numbers and ranges")):
        r = ask(*run, "--out", out + "2", *bad)
        checks.that(r.returncode == 1 and words in r.stderr and "Traceback" not in r.stderr,
                    f"{bad}: {r.returncode} {r.stderr}")
    mine = os.path.join(folder, "mine")
    os.makedirs(mine)
    with open(os.path.join(mine, "letter"), "w") as f:
        f.write("not a capture")
    r = ask(*run, "--out", mine, "--force")
    checks.that(r.returncode == 1 and "is no capture" in r.stderr and
                os.path.exists(os.path.join(mine, "letter")), "--force took what is no capture")


def check_kill(checks, folder, model, text):
    """SIGKILL while rows come."""
    out = os.path.join(folder, "killed")
    run = ["--model", model, "--text", text, "--bytes", "--out", out, "--decode", 400, "--length", 64]
    p = subprocess.Popen(command(*run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = os.path.join(out + ".part", "0005.rows")  # of the last layer in decode
    end = time.time() + 120
    while time.time() < end and p.poll() is None and \
            not (os.path.exists(last) and os.path.getsize(last) > 2000):
        time.sleep(0.01)
    r = ask("--salvage", out)
    checks.that(r.returncode == 1 and "a run that lives" in r.stderr, f"salvage of a live run: {r}")
    r = ask(*run)
    checks.that(r.returncode == 1 and "another run is writing" in r.stderr, f"second run: {r.stderr}")
    checks.that(p.poll() is None, "the run ended before it was killed")
    p.send_signal(signal.SIGKILL)
    p.wait()
    checks.that(not os.path.exists(out) and os.path.isdir(out + ".part"), "killed: a capture is there")
    r = ask(*run)
    checks.that(r.returncode == 1 and "left by a run that was killed" in r.stderr, f"after: {r.stderr}")
    with open(last, "ab") as f:
        f.write(b"\x7f" * 7)  # half a row
    r = ask("--salvage", out)
    if checks.that(r.returncode == 0 and not os.path.exists(out + ".part"), f"salvage: {r.stderr}"):
        case = r.stdout.strip()
        checks.good(case, "salvaged", rows(case))
    r = ask("--salvage", out)
    checks.that(r.returncode == 1 and "nothing to salvage" in r.stderr, "salvage twice")


DIE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import spool
n = int(sys.argv[4])
for name in ("rename", "unlink", "mkdir", "fsync"):
    def stop(*args, original=getattr(os, name), **kwargs):
        global n
        n -= 1
        if n == 0:
            os.kill(os.getpid(), 9)
        return original(*args, **kwargs)
    setattr(os, name, stop)
s = spool.Spool(sys.argv[2], force=sys.argv[3] == "force")
import shutil
for name in ("config.json", "router.safetensors"):
    shutil.copyfile(os.path.join(sys.argv[5], name), s.path(name))
import json
case = json.load(open(os.path.join(sys.argv[5], os.path.basename(sys.argv[5]) + ".json")))
s.describe({"name": "c", "about": "", "metadata": {}, "case": {"config": "config.json"}})
for first in (0, 1):
    for layer in (0, 1, 2):
        s.append("p", layer, [("gate.input", "F32", 96)], bytes(384 * 3), 3)
s.finish()
"""


def check_every_step(checks, folder, source):
    """SIGKILL before each call that changes a folder, with and without a capture to replace."""
    for force in ("no", "force"):
        for n in range(1, 200):
            out = os.path.join(folder, f"step-{force}-{n}", "c")
            os.makedirs(os.path.dirname(out))
            if force == "force":
                subprocess.run([sys.executable, "-B", "-c", DIE, TOOLS, out, "no", "0", source], check=True)
                with open(os.path.join(out, "old"), "w"):
                    pass
            r = subprocess.run([sys.executable, "-B", "-c", DIE, TOOLS, out, force, str(n), source],
                               capture_output=True, text=True)
            here = f"{force}, killed at step {n}"
            if os.path.exists(out):
                whole(checks, out, here)
            if r.returncode == 0:
                break
            checks.that(r.returncode == -signal.SIGKILL, f"{here}: {r.stderr}")
            again(checks, out, here)
        checks.that(r.returncode == 0 and n > 15, f"{force}: ended at step {n}: {r.returncode}")


def whole(checks, out, here):
    try:
        case = json.load(open(os.path.join(out, "c.json")))
        got = tensors(os.path.join(out, "capture.safetensors"))
        good = case["phases"] == ["p"] and len(got) == 3 and \
            all(t[1] == [6, 96] for t in got.values()) and \
            os.path.exists(os.path.join(out, "router.safetensors"))
    except (OSError, ValueError) as e:
        good = e
    checks.that(good is True, f"{here}: {out} is not whole: {good}")


def again(checks, out, here):
    """What a later run does: it salvages what is left, or else starts anew; never both are lost."""
    from layout import CaptureError
    try:
        salvage(out, force=True)
    except CaptureError:
        pass
    if not os.path.exists(out):
        try:
            s = Spool(out, force=True)
            s.discard()
        except CaptureError as e:
            checks.that(False, f"{here}: cannot start again: {e}")
    else:
        got = tensors(os.path.join(out, "capture.safetensors"))
        checks.that(len(got) >= 1 and os.path.exists(os.path.join(out, "c.json")),
                    f"{here}: salvaged, and not whole")


def check_exception(checks, folder):
    model = models.build("qwen3_moe")
    out = os.path.join(folder, "raised")
    try:
        with capture(model, out):
            generate(model, prompt(1, 8, "cpu"), 1)
            raise KeyError("user")
    except KeyError:
        pass
    checks.that(not os.path.exists(out) and os.path.isdir(out + ".part"), "exception: a capture is there")
    checks.that(not any(m._forward_hooks for m in model.modules()), "exception: a hook is left on")
    checks.good(salvage(out), "after an exception", 3 * 9)


def check(checks, device, folder):
    model, text = saved_model(folder)
    check_command(checks, device, folder, model, text)
    check_kill(checks, folder, model, text)
    check_exception(checks, folder)
    check_every_step(checks, folder, os.path.join(folder, "command"))
    print("crash: checked", flush=True)
