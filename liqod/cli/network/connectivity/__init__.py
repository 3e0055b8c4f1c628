"""``test``: which paths there are, the pods that try them, and what their answers mean."""
