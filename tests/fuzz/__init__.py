"""Everything that strangers' bytes reach, as functions of bytes: for hypothesis in the tests, for atheris by hand."""
