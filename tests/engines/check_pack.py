"""tools/engines/pack.py: what comes back is what went in, and damage is refused. Exit status 1 if not."""
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "engines" / "pack.py"
sys.path.insert(0, str(TOOL.parent))
import observed
import pack
from expecting import expect, verdict
from output_file import output_file


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def fill(folder):
    """Recordings that share tensors, and what is nearly one."""
    ids = bytes(range(256)) * 64
    for kernel in "abc":
        for rows in (1, 6, 16):
            (folder / "case").mkdir(parents=True, exist_ok=True)
            observed.write(folder / "case" / f"x.{kernel}.m{rows}.safetensors",
                           {"ids": ("I32", (64, 64), ids), "none": ("F32", (0, 8), b""),
                            "w": ("U8", (3,), f"{kernel}{rows:02}".encode())}, {"rows": str(rows)})
    head = (folder / "case" / "x.a.m1.safetensors").read_bytes()
    for name, data in {"empty": b"", "short": b"abc", "cut": head[:200], "tail": head + b"more",
                       "long": b"\xff" * 64, "list": b"\2" + bytes(7) + b"[]",
                       "true": b"\x21" + bytes(7) + b'{"a":{"data_offsets":[0,"x"]}}   ',
                       "records.jsonl": b"{}\n", "é \n": b"odd name"}.items():
        (folder / name).write_bytes(data)
    (folder / "logs").mkdir()
    (folder / "logs" / "a").write_bytes(b"not wanted")


def refused(what, data, folder, said):
    """One line, and nothing written."""
    try:
        pack.unpack(data, folder)
        expect(what, "unpacked", said)
    except pack.Bad as e:
        expect(what, said in str(e) and "\n" not in str(e), True)
    expect(f"{what}: files", contents(folder) if folder.exists() else {}, {})


def made(index, body=b""):
    index = index.encode()
    data = pack.MAGIC + pack.struct.pack("<Q", len(index)) + index + body
    return data + pack.hashlib.sha256(data).digest()


def damage(data, folder):
    for at in (0, len(pack.MAGIC), 40, len(data) // 2, len(data) - 1):
        hurt = bytearray(data)
        hurt[at] ^= 1
        refused(f"byte {at}", bytes(hurt), folder / "hurt", "no file of" if at == 0 else "damaged")
    for size in (0, 5, 20, len(data) - 1):
        refused(f"first {size} bytes", data[:size], folder / "cut", "")
    refused("more bytes", data + b"x", folder / "more", "damaged")
    for index in ("[]", "{", '{"sizes":[9],"files":[]}', '{"sizes":[],"files":[["a",[0]]]}',
                  '{"sizes":[true],"files":[]}', '{"sizes":[],"files":[3]}'):
        refused(index, made(index), folder / "index", "index does not fit")
    for path in ("/tmp/x", "../x", "a/../../x", "", "."):
        refused(path, made(pack.json.dumps({"sizes": [], "files": [[path, []]]})), folder / "path", "no path")


def command(*arguments, **more):
    return subprocess.run([sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, **more)


def main():
    with tempfile.TemporaryDirectory() as at:
        at = Path(at)
        fill(at / "in")
        out = io.BytesIO()
        count, total, stored = pack.pack(at / "in", out, ["logs"])
        wanted = {k: v for k, v in contents(at / "in").items() if not k.startswith("logs/")}
        expect("files and bytes", (count, total), (len(wanted), sum(map(len, wanted.values()))))
        expect("the shared tensor is stored once", stored < total - 8 * 16384, True)
        pack.unpack(out.getvalue(), at / "out")
        expect("what comes back", contents(at / "out"), wanted)
        damage(out.getvalue(), at)
        expect("file", command(at / "in", at / "f", "--skip", "logs").returncode, 0)
        expect("same bytes each time", (at / "f").read_bytes(), out.getvalue())
        piped = command("--skip", "logs", at / "in", "-").stdout
        expect("standard output", piped, out.getvalue())
        expect("standard input", command("--unpack", "-", at / "again", input=piped).returncode, 0)
        expect("what comes back of it", contents(at / "again"), wanted)
        os.mkfifo(at / "pipe")
        end = os.open(at / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        with output_file(at / "pipe") as f:
            f.write("whole")
        expect("what a pipe got", os.read(end, 16), b"whole")
        os.close(end)
        expect("a pipe is no file afterwards", (at / "pipe").is_fifo(), True)
        os.remove(at / "pipe")
        os.symlink(at / "f", at / "in" / "link")
        for arguments in (("--unpack", at / "f", at / "again"), ("--unpack", at / "none", at / "x"),
                          ("--unpack", at / "in" / "tail", at / "x"), (at / "none", at / "x"),
                          (at / "in", at / "x"), (at / "out", at / "none" / "f")):
            ran = command(*arguments)
            expect(f"{arguments}", (ran.returncode, ran.stderr.count(b"\n")), (3, 1))
        expect("nothing is left", sorted(p.name for p in at.iterdir()), ["again", "f", "in", "out"])
    return verdict("pack.py", "ok")


if __name__ == "__main__":
    sys.exit(main())
