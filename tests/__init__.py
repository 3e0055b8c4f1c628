"""The tests of liqod, run by trial."""
