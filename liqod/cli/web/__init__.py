"""The page of ``liqodctl web``: what ``status`` and ``explain`` say, for a browser; live and read-only."""
