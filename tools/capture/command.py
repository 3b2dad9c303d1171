"""The command's own model run: a text in sequences, each prefilled, then decoded greedily."""
from capture import CaptureError, capture, numbers
from spool import may_replace, restore

TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def arguments(p):
    p.add_argument("--model", help="a folder, or an id that transformers finds")
    p.add_argument("--text", help="UTF-8 text to run")
    p.add_argument("--out", help="folder to make")
    p.add_argument("--name", help="of the case (the folder's)")
    p.add_argument("--max-rows", type=int, help="rows kept of each layer and phase (all)")
    p.add_argument("--layers", help="as 1,3-5 (all)")
    p.add_argument("--dtype", choices=sorted(TYPES), default="bf16")
    p.add_argument("--device", default="cpu", help="as torch writes it (cpu)")
    p.add_argument("--length", type=int, default=256, help="tokens of a sequence (256)")
    p.add_argument("--decode", type=int, default=32, help="steps after each sequence (32)")
    p.add_argument("--sequences", type=int, default=16, help="at most so many (16)")
    p.add_argument("--bytes", action="store_true",
                   help="the text's bytes are token ids: for a model without tokenizer")
    p.add_argument("--force", action="store_true", help="replace a capture that is there")
    p.add_argument("--salvage", metavar="DIR", help="finish what a killed run left of DIR")


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise CaptureError(f"{path}: {e.strerror}") from None


def token_ids(args, text, config):
    if args.bytes:
        size = config.get_text_config().vocab_size
        ids = [b % size for b in text]
    else:
        from transformers import AutoTokenizer
        ids = AutoTokenizer.from_pretrained(args.model)(text.decode(errors="replace"))["input_ids"]
    if not ids:
        raise CaptureError(f"{args.text}: has no token")
    return ids


def full(c, args):
    """All rows that are wanted are there."""
    return args.max_rows is not None and all(
        c.recorder.left(phase, r.layer) <= 0
        for phase in (("prefill", "decode") if args.decode else ("prefill",)) for r in c.routers)


def run(args, parser):
    for needed in ("model", "text", "out"):
        if not getattr(args, needed):
            parser.error(f"--{needed} is missing")
    if min(args.length, args.sequences) < 1 or args.decode < 0:
        parser.error("--length and --sequences: expected at least 1, --decode at least 0")
    # All that needs no model, before it is loaded.
    layers = numbers(args.layers) if args.layers else None
    text = read(args.text)
    restore(args.out)
    may_replace(args.out, args.force)
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as e:
        raise CaptureError(f"torch and transformers are needed: {e}") from None
    try:
        config = AutoConfig.from_pretrained(args.model)
        ids = token_ids(args, text, config)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, TYPES[args.dtype]))
        model = model.to(args.device).eval()
    except (OSError, ValueError, RuntimeError, KeyError) as e:
        raise CaptureError(f"{args.model}: {str(e).strip().splitlines()[0]}") from None
    with capture(model, args.out, args.max_rows, layers, args.name, args.force) as c, \
            torch.inference_mode():
        for first in range(0, min(len(ids), args.sequences * args.length), args.length):
            x = torch.tensor([ids[first:first + args.length]], device=args.device)
            given = model(input_ids=x, use_cache=True)
            for _ in range(args.decode):
                x = given.logits[:, -1:].argmax(-1)
                given = model(input_ids=x, past_key_values=given.past_key_values, use_cache=True)
            if full(c, args):
                break
    return c.path
