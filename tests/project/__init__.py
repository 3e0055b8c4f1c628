"""Tests of the project as a whole: structure, documents, packaging, tools."""
