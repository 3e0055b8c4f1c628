"""The tests of liqod, run by trial."""

from tests import properties

# The package of all tests is imported before any of them, and a property test takes its settings when it is defined.
properties.load()
