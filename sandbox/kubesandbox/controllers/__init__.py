"""Controllers, scheduler, and their common base class."""
