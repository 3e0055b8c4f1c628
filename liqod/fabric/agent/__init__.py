"""The network agent: it alone changes the host's network, from a ``DesiredNetwork`` to a ``NetworkReport``.

It runs in the process of control or, with ``[daemon] role = "network"``, in one of its own, with the capabilities
NET_ADMIN and NET_RAW; it imports nothing of ``fabric.control``.
"""
