"""One function of bytes per decoder, by subject: returns for what the decoder may refuse, raises for all else.

A target checks what must hold besides: that a refusal has a reason, that memory and state are those of an ended
session, that what was accepted can be said again, that what comes out is on a list of its own.
"""
