"""Several Python threads at once, the GIL, and processes that were forked."""
import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import moeref
from support import ROUTER, kernel, problem, refused

HIDDEN, GATE, BIAS = problem(tokens=600)
IDS, WEIGHTS = kernel(HIDDEN, GATE, BIAS)


def both(threads):
    routing = moeref.route(HIDDEN, GATE, ROUTER, bias=BIAS, threads=threads)
    judged = moeref.verify(HIDDEN, GATE, ROUTER, IDS, WEIGHTS, bias=BIAS, threads=threads)
    return (routing.ids.tobytes(), routing.weights.tobytes(), routing.gap.tobytes(),
            routing.certificate.tobytes(), judged.verdicts.tobytes(), str(judged.json))


def test_any_number_of_threads():
    want = both(1)
    assert all(both(threads) == want for threads in (0, 2, 3, 7))


def test_several_callers():
    want = both(1)
    with ThreadPoolExecutor(6) as pool:
        for got in pool.map(both, [0, 1, 2, 3] * 12):
            assert got == want


def test_gil_is_released():
    """While one thread routes, this one runs."""
    hidden, gate, bias = problem(tokens=3000, hidden=1024)
    done = threading.Event()

    def work():
        moeref.route(hidden, gate, ROUTER, bias=bias, threads=1, without_blas=True)
        done.set()

    turns, thread = 0, threading.Thread(target=work)
    before = sys.getswitchinterval()
    thread.start()
    while not done.is_set():
        turns += 1
        time.sleep(0.001)
    thread.join()
    assert before == sys.getswitchinterval() and turns >= 3, turns


def test_forked_child():
    """It calls with one thread, and does not wait for those of its parent for ever."""
    want = both(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            with refused("forked"):
                both(2)
            status = 0 if both(0) == want else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
