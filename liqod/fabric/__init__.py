"""The network fabric: pod traffic between clusters, through a tunnel, with addresses remapped where they overlap."""
