"""What this cluster borrows: offers received, their acceptance, and the VirtualNode that follows."""
