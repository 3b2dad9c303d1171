"""libmoeref.so and the functions of ref/api/api.h. ctypes lets go of the GIL while one runs."""
import ctypes
import json
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p

API_VERSION = 1
WHY_BYTES = 1024
HERE = os.path.dirname(os.path.abspath(__file__))


def _candidates():
    """$MOEREF_LIBRARY alone if it is set; else the one of the wheel; else that of the repository
    that this package lies in."""
    said = os.environ.get("MOEREF_LIBRARY")
    if said:
        return [said]
    root = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
    found = [os.path.join(HERE, "libmoeref.so")]
    if os.path.exists(os.path.join(root, "ref", "moeref.h")):
        found.append(os.path.join(root, "build", "libmoeref.so"))
    return found


def _load():
    paths = _candidates()
    for path in paths:
        if not os.path.exists(path):
            continue
        try:
            library = ctypes.CDLL(path)
            version = library.mr_api_version()
        except (OSError, AttributeError) as why:
            raise ImportError(f"{path}: cannot be loaded: {why} (the libraries that it needs come "
                              "with 'make deps' in the moeref repository)") from None
        if version != API_VERSION:
            raise ImportError(f"{path}: its API has version {version}, this package needs "
                              f"{API_VERSION}: install both anew")
        return library
    raise ImportError("libmoeref.so: not found, looked for " + ", ".join(paths) +
                      " (pip install tools/python, or 'make shared' in the moeref repository)")


_why = [c_char_p, c_size_t]
_signatures = {
    "mr_api_library_version": (c_char_p, []),
    "mr_api_status_name": (c_char_p, [c_int]),
    "mr_api_certificate_name": (c_char_p, [c_int]),
    "mr_api_verdict_name": (c_char_p, [c_int]),
    "mr_api_text_free": (None, [c_void_p]),
    "mr_api_router_new": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)] + _why),
    "mr_api_router_text": (c_void_p, [c_void_p]),
    "mr_api_router_free": (None, [c_void_p]),
    "mr_api_input_new": (c_int, [c_void_p, POINTER(c_void_p)] + _why),
    "mr_api_input_set": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, c_uint64,
                                 POINTER(c_uint64), c_int] + _why),
    "mr_api_input_free": (None, [c_void_p]),
    "mr_api_route": (c_int, [c_void_p, c_char_p, c_uint64] + [c_void_p] * 7 +
                     [POINTER(c_void_p)] + _why),
    "mr_api_verify": (c_int, [c_void_p, c_char_p, c_uint64, c_void_p, c_void_p,
                              POINTER(c_void_p)] + _why),
}
library = _load()
for _name, (_result, _arguments) in _signatures.items():
    _function = getattr(library, _name)
    _function.restype, _function.argtypes = _result, _arguments


def library_version():
    return library.mr_api_library_version().decode()


def _names(name_of):
    names = []
    while (name := name_of(len(names)).decode()) != "?":
        names.append(name)
    return tuple(names)


CERTIFICATES = _names(library.mr_api_certificate_name)  # by code
VERDICTS = _names(library.mr_api_verdict_name)          # by code, worst first


def call(function, *arguments):
    """Of those that return a status: raises what it says."""
    why = ctypes.create_string_buffer(WHY_BYTES)
    status = function(*arguments, why, WHY_BYTES)
    if not status:
        return
    text = why.value.decode(errors="replace")
    name = library.mr_api_status_name(status).decode()
    raise {"memory": MemoryError, "io": OSError}.get(name, ValueError)(text or name)


def take_text(address):
    """The JSON behind a pointer that the library handed out."""
    if not address:
        raise MemoryError("out of memory")
    try:
        return json.loads(ctypes.string_at(address))
    finally:
        library.mr_api_text_free(address)


class Handle:
    """What a function hands out, freed at the end of a with block."""

    def __init__(self, new, free, *arguments):
        self.pointer, self._free = c_void_p(), free
        call(new, *arguments, byref(self.pointer))

    def __enter__(self):
        return self.pointer

    def __exit__(self, *_):
        self._free(self.pointer)


# OpenMP's threads do not live on in a forked child, which would wait for them for ever.
_state = {"called": False, "forked": False}


def _in_child():
    _state["forked"] = _state["forked"] or _state["called"]


os.register_at_fork(after_in_child=_in_child)


def threads(asked):
    """How many to use: 0 is as many as OpenMP has."""
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= 1024:
        raise ValueError(f"threads: expected 0 (as many as there are) to 1024, found {asked!r}")
    if _state["forked"] and asked > 1:
        raise ValueError("threads: this process was forked from one that had called moeref, and "
                         "can have one thread only (use the start method 'spawn')")
    _state["called"] = True
    return 1 if _state["forked"] else asked
