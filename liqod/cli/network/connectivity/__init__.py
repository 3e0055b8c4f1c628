"""``test``: which ways there are, the pods that try them, and what their answers mean."""
