"""The Helm chart as this program applies it: the same templates and values, without Helm."""
