"""The file that a user names for output: it has its name when it is whole, and what is no ordinary file
(a pipe, /dev/stdout, /dev/null) is written, never replaced."""
import os
from contextlib import contextmanager


@contextmanager
def output_file(path, mode="w"):
    path = str(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, mode) as f:
            yield f
        return
    temporary = f"{path}.tmp.{os.getpid()}"
    try:
        with open(temporary, mode.replace("w", "x")) as f:
            yield f
        os.replace(temporary, os.path.realpath(path))
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
