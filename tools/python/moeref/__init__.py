"""Certified Mixture-of-Experts routing, and a judge for router kernels.

    route(hidden, gate_weight, router)                      which experts are right, with proofs
    verify(hidden, gate_weight, router, topk_ids, ...)      a kernel's answer, judged token by token
    assert_routing(hidden, gate_weight, router, topk_ids, ...)   the same, for tests

Arrays are numpy's or torch's. What is computed is said in the headers of libmoeref (ref/api/api.h,
ref/route/router.h); README.md has a test that uses it."""
from ._judge import Finding, Verification, assert_routing, verify
from ._library import CERTIFICATES, VERDICTS, library_version
from ._route import Routing, Tie, route
from ._router import Router

__version__ = library_version()
__all__ = ["CERTIFICATES", "VERDICTS", "Finding", "Router", "Routing", "Tie", "Verification",
           "assert_routing", "route", "verify"]
