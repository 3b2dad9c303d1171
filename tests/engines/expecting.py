"""What the checks here share that go on after a wrong answer."""
bad = 0


def expect(what, found, expected):
    global bad
    if found != expected:
        bad += 1
        print(f"WRONG {what}: {found!r}, expected {expected!r}")


def verdict(name, right):
    """The last line, and the exit status."""
    print(f"{name}: {'WRONG' if bad else right}")
    return 1 if bad else 0
