"""The test runner: which steps there are, in which order they run, what came of them, and its report."""
