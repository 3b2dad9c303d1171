"""Files that moeref reads: safetensors written without holding them in memory, and tensors copied
out of checkpoints byte for byte. Plain Python, no packages."""
import json
import os
import re
import struct

WIDTH = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2}
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
# What a router may hold: its linear layer, whatever it is called, biases, a table of token ids.
ROUTER = re.compile(r"(^|\.)((gate|router)(\.[a-z_]+)*\.(weight|bias)|"
                    r"e_score_correction_bias|router_bias|expert_bias|tid2eid)$")


class CaptureError(Exception):
    """One line for the user."""


def sync_folder(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path, data):
    """Under path there is the old file or the new one, never a part."""
    with open(path + ".tmp", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)


def write_json(path, value):
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


def write_safetensors(path, tensors, metadata):
    """tensors: (name, dtype, shape, pieces); pieces is called when its turn comes and yields bytes.
    By falling width, then name, so that every tensor is aligned to its element."""
    tensors = sorted(tensors, key=lambda t: (-WIDTH[t[1]], t[0]))
    header, at = {"__metadata__": metadata}, 0
    for name, dtype, shape, _ in tensors:
        size = WIDTH[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, pieces in tensors:
            wanted = header[name]["data_offsets"][1] + 8 + len(text)
            for piece in pieces():
                f.write(piece)
            if f.tell() != wanted:
                raise CaptureError(f"{path}: {name}: {f.tell() - wanted:+d} bytes too many")
        f.flush()
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)


def read_header(path):
    """(header, where the data begin); the metadata is taken out."""
    try:
        with open(path, "rb") as f:
            n, = struct.unpack("<Q", f.read(8))
            if n > 100 << 20 or n + 8 > os.path.getsize(path):
                raise ValueError(f"a header of {n} bytes")
            header = json.loads(f.read(n))
            header.pop("__metadata__", None)
            for t in header.values():
                if 8 + n + t["data_offsets"][1] > os.path.getsize(path):
                    raise ValueError("it is cut off")
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as e:
        raise CaptureError(f"{path}: no safetensors file: {e}") from None
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror}") from None
    return header, 8 + n


def _shards(folder):
    index = os.path.join(folder, INDEX)
    if not os.path.exists(index):
        return [os.path.join(folder, SINGLE)]
    try:
        with open(index) as f:
            where = json.load(f)["weight_map"]
        return [os.path.join(folder, s)
                for s in sorted({s for name, s in where.items() if ROUTER.search(name)})]
    except (ValueError, KeyError, AttributeError) as e:
        raise CaptureError(f"{index}: no index of safetensors: {e}") from None


def routers_of_checkpoint(folder):
    """The routers' tensors of a checkpoint's folder, as write_safetensors takes them."""
    found = []
    for path in _shards(folder):
        header, base = read_header(path)
        for name, t in header.items():
            if not ROUTER.search(name):
                continue
            if t["dtype"] not in WIDTH:
                raise CaptureError(f"{path}: {name}: a router stored as {t['dtype']} is not read")
            found.append((name, t["dtype"], t["shape"], _piece(path, base, t["data_offsets"])))
    if not found:
        raise CaptureError(f"{folder}: no router among its tensors")
    return found


def _piece(path, base, offsets):
    def pieces():
        with open(path, "rb") as f:
            f.seek(base + offsets[0])
            yield f.read(offsets[1] - offsets[0])
    return pieces
