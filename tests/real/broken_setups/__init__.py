"""Thirty broken set-ups of two real clusters: does the first screen of ``liqodctl status`` name cause and object?"""
