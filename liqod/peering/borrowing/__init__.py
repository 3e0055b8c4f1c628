"""The borrower's side: received offers, their acceptance, and the VirtualNode records made from them."""
