"""What the lenders of a sweep are called; apart from the process that has them, which installs a reactor."""


def name_of(number: int) -> str:
    """Return the name, and on sandbox servers the cluster ID, of a lender."""
    return f"lender-{number}"
