#!/usr/bin/env python3
"""A folder of recordings in one file that holds equal tensors once:

    python3 tools/engines/pack.py [--skip NAME]... DIR FILE     FILE - is standard output
    python3 tools/engines/pack.py --unpack FILE DIR             FILE - is standard input

--skip: of DIR's own entries, not those. Kernels that choose the same experts for the same tokens hold
the same bytes at many row counts. A safetensors file is cut after its header and where its tensors
end; each piece is stored once, by SHA-256. Whatever else a file is, it is one piece: any folder of plain
files comes back byte for byte. Exit status: 0, 2 usage, 3 one line that says what is wrong.

FILE: the line MAGIC; u64 bytes of the index; the index, JSON: "sizes" of pieces and "files", [path,
numbers of its pieces]; the pieces; SHA-256 of all before it. Nothing is unpacked from a FILE that is
damaged, nor over a file that is there.
"""
import argparse
import hashlib
import json
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from output_file import output_file

MAGIC = b"moeref-pack 1\n"
DIGEST = hashlib.sha256().digest_size
LARGEST_HEADER = 100 << 20  # as safetensors has it


class Bad(Exception):
    """One line."""


def cuts(data):
    """Where a file's pieces end. One piece where it is no safetensors file, or only nearly one."""
    whole = [len(data)]
    if len(data) < 8:
        return whole
    size = struct.unpack_from("<Q", data)[0]
    if size > min(LARGEST_HEADER, len(data) - 8):
        return whole
    base = 8 + size
    try:
        header = json.loads(data[8:base])
        ends = {base + v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"}
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return whole
    if not all(isinstance(e, int) and base <= e <= len(data) for e in ends):
        return whole
    return sorted(ends | {base, len(data)})


def read(path):
    """[(SHA-256, bytes)] of a file's pieces."""
    try:
        if not path.is_file() or path.is_symlink():
            raise Bad(f"{path}: no plain file")
        data = path.read_bytes()
    except OSError as e:
        raise Bad(f"{path}: {e.strerror}") from None
    out, begin = [], 0
    for end in cuts(data):
        piece = data[begin:end]
        out.append((hashlib.sha256(piece).digest(), piece))
        begin = end
    return out


def listing(folder, skip):
    """[(path as stored, path)], in order of path: a kernel's row counts side by side."""
    if not folder.is_dir():
        raise Bad(f"{folder}: no folder")
    found = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] not in skip and (path.is_symlink() or not path.is_dir()):
            found.append((name.as_posix(), path))
    return sorted(found)


def pack(folder, out, skip=()):
    """Writes to a binary stream; (files, bytes in them, bytes of pieces)."""
    names = listing(folder, skip)
    numbers, pieces, files, total = {}, [], [], 0
    with ThreadPoolExecutor() as pool:
        for (name, _), cut in zip(names, pool.map(read, [p for _, p in names])):
            held = []
            for digest, piece in cut:
                total += len(piece)
                if digest not in numbers:
                    numbers[digest] = len(pieces)
                    pieces.append(piece)
                held.append(numbers[digest])
            files.append([name, held])
    index = json.dumps({"sizes": list(map(len, pieces)), "files": files}, separators=(",", ":")).encode()
    digest = hashlib.sha256()
    for part in (MAGIC, struct.pack("<Q", len(index)), index, *pieces):
        digest.update(part)
        out.write(part)
    out.write(digest.digest())
    out.flush()
    return len(files), total, sum(map(len, pieces))


def index_of(data, name):
    """Its index, and where pieces begin. Raises Bad."""
    head = len(MAGIC) + 8
    if data[:len(MAGIC)] != MAGIC:
        raise Bad(f"{name}: no file of pack.py")
    if len(data) < head + DIGEST or hashlib.sha256(data[:-DIGEST]).digest() != data[-DIGEST:]:
        raise Bad(f"{name}: damaged: its bytes are not those of its SHA-256")
    base = head + struct.unpack_from("<Q", data, len(MAGIC))[0]
    try:
        index = json.loads(bytes(data[head:base]))
        sizes, files = index["sizes"], index["files"]
        fine = all(type(n) is int and n >= 0 for n in sizes) and \
            base + sum(sizes) + DIGEST == len(data) and \
            all(type(i) is int and 0 <= i < len(sizes) for _, held in files for i in held)
    except (ValueError, TypeError, KeyError, RecursionError):
        fine = False
    if not fine:
        raise Bad(f"{name}: its index does not fit its bytes")
    return sizes, files, base


def inside(name):
    """Whether a stored path stays in the folder."""
    if not isinstance(name, str) or not name or "\0" in name:
        return False
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def unpack(data, folder, name="FILE"):
    """How many files."""
    data = memoryview(data)
    sizes, files, at = index_of(data, name)
    wrong = next((f for f, _ in files if not inside(f)), None)
    if wrong is not None:
        raise Bad(f"{name}: holds {wrong!r}: no path inside of a folder")
    pieces = []
    for size in sizes:
        pieces.append(data[at:at + size])
        at += size
    made = set()
    for path, held in files:
        to = folder / path
        try:
            if to.parent not in made:
                to.parent.mkdir(parents=True, exist_ok=True)
                made.add(to.parent)
            with open(to, "xb") as f:
                for i in held:
                    f.write(pieces[i])
        except FileExistsError:
            raise Bad(f"{to}: is there already") from None
        except OSError as e:
            raise Bad(f"{to}: {e.strerror}") from None
    return len(files)


def run(a):
    if a.unpack:
        data = sys.stdin.buffer.read() if a.source == "-" else Path(a.source).read_bytes()
        print(f"{unpack(data, Path(a.to), a.source)} files", file=sys.stderr)
        return
    if a.to == "-":
        said = pack(Path(a.source), sys.stdout.buffer, a.skip)
    else:
        with output_file(a.to, "wb") as f:
            said = pack(Path(a.source), f, a.skip)
    print("{} files of {} bytes in {} bytes".format(*said), file=sys.stderr)


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--unpack", action="store_true")
    p.add_argument("--skip", action="append", default=[], metavar="NAME")
    p.add_argument("source")
    p.add_argument("to")
    try:
        run(p.parse_args(argv))
    except Bad as e:
        print(f"pack.py: {e}", file=sys.stderr)
        return 3
    except OSError as e:
        print(f"pack.py: {e.filename or 'output'}: {e.strerror}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
