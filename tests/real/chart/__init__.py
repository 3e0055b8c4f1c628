"""The pods of an installation on real clusters: by Helm as the README has it, by kubectl alone, and under load."""
