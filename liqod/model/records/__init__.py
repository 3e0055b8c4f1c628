"""Views of liqod's own records, as their definitions describe them."""
