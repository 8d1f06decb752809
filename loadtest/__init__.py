"""The project's own benchmarks: `python -m loadtest NAME`. README.md says how to read a number."""
