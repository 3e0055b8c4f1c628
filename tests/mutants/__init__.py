"""Mutation tests: break the code in one small place, and see whether a test notices.

    make mutants ARGS='--group trust --count 40'
    python -m tests.mutants --package liqod.peering.trust.authenticator --list

A mutant is one small replacement in the text of one function, drawn by a seed, applied in a copy of the checkout. The
unit tests that reach the function run against it, nearest first, until one fails; what survives all of them meets the
scenario tests. Results are kept in ``.cache/mutants``, so that an interrupted run goes on where it ended.
"""
