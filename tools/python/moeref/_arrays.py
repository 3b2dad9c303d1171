"""numpy arrays and torch tensors to what the library takes: an address, a dtype by name, a shape.

An array that is not contiguous is copied once. A tensor that is on a GPU is copied to the CPU, if
torch is what made it: torch itself is never imported here."""
import sys
from ctypes import c_uint64
from dataclasses import dataclass

import numpy as np

from ._library import call, library

NUMPY = {"float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "int64": "I64",
         "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32",
         "uint16": "U16", "uint8": "U8", "bool": "BOOL"}
WORDS = {"bf16": "BF16", "bfloat16": "BF16", "fp16": "F16", "float16": "F16"}
INTEGERS = ("topk_ids", "token_index")  # where uint16 means uint16


@dataclass
class Borrowed:
    """Memory that must live as long as the library uses it."""
    name: str
    dtype: str
    address: int
    bytes: int
    shape: tuple
    owner: object


def _is_tensor(value):
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(value, kind)


def _of_tensor(name, tensor):
    try:
        if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
            raise ValueError(f"{name}: expected a plain dense tensor")
        tensor = tensor.detach().cpu().resolve_neg().contiguous()
        address, size = tensor.data_ptr(), tensor.element_size()
    except (RuntimeError, NotImplementedError) as why:
        raise ValueError(f"{name}: this tensor holds no data that can be read: "
                         f"{str(why).splitlines()[0]}") from None
    word = str(tensor.dtype).removeprefix("torch.")
    return Borrowed(name, NUMPY.get(word, word), address, size * tensor.numel(),
                    tuple(tensor.shape), tensor)


def _of_array(name, value):
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name}: a masked array, whose mask would be lost")
    try:
        array = np.asarray(value)
    except Exception as why:  # of whatever the value's own code raises
        reason = str(why).splitlines()[:1] or [type(why).__name__]
        raise ValueError(f"{name}: no array can be made of this {type(value).__name__}: "
                         f"{reason[0]}") from why
    if array.dtype.hasobject or not array.dtype.name:
        raise ValueError(f"{name}: expected numbers, found {type(value).__name__} of dtype "
                         f"{array.dtype}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    shape, array = array.shape, np.ascontiguousarray(array)
    word = array.dtype.name
    return Borrowed(name, NUMPY.get(word, word), array.ctypes.data, array.nbytes, shape, array)


def borrow(arrays, dtype):
    """name -> value to a list of Borrowed; None is left out. dtype ("bf16", "fp16") says what arrays
    of uint16 hold, of which there must then be one."""
    if dtype is not None and dtype not in WORDS:
        raise ValueError(f"dtype: expected one of {', '.join(WORDS)} (what uint16 arrays hold), "
                         f"found {dtype!r}")
    taken, used = [], False
    for name, value in arrays.items():
        if value is None:
            continue
        one = _of_tensor(name, value) if _is_tensor(value) else _of_array(name, value)
        if one.dtype == "U16" and name not in INTEGERS:
            if dtype is None:
                raise ValueError(f'{name}: of uint16: dtype="bf16" would say that its bits are '
                                 "those of bfloat16")
            one.dtype, used = WORDS[dtype], True
        taken.append(one)
    if dtype is not None and not used:
        raise ValueError(f"dtype={dtype!r} says what uint16 arrays hold, and there is none")
    return taken


def hand_over(handle, taken):
    for one in taken:
        shape = (c_uint64 * max(1, len(one.shape)))(*one.shape)
        call(library.mr_api_input_set, handle, one.name.encode(), one.dtype.encode(),
             one.address or None, one.bytes, shape, len(one.shape))
