"""Controllers, scheduler, and the frame that they share."""
